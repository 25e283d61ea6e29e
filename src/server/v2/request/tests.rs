//! Requests that are read, and those that are refused.

use super::*;

fn decode(body: &[u8]) -> Result<InferRequest, Error> {
    parse(body, None)?.read()
}

fn message(body: &str) -> String {
    match decode(body.as_bytes()) {
        Err(Error::Invalid(message)) => message,
        other => panic!("{body} gave {other:?}"),
    }
}

#[test]
fn members_may_come_in_any_order_and_unknown_ones_are_ignored() {
    let body = r#"{"model_name":"m","outputs":[{"name":"y","parameters":{"binary_data":false}}],
        "inputs":[{"data":[[1],[2]],"parameters":{"a":[{}]},"datatype":"UINT8","shape":[2,1],"name":"x"}],
        "parameters":{"priority":1,"timeout":"1500","sequence_end":true},"id":"a\"b"}"#;
    let request = decode(body.as_bytes()).unwrap();
    assert_eq!(request.id.as_deref(), Some("a\"b"));
    assert_eq!(request.call.outputs, ["y"]);
    assert_eq!(request.call.timeout, Some(Duration::from_micros(1500)));
    let x = request.call.inputs.get("x").unwrap();
    assert_eq!((x.shape(), x.data()), (&[2, 1][..], &Data::Uint8(vec![1, 2])));
}

#[test]
fn binary_elements_are_the_next_bytes_behind_the_json_in_the_order_of_the_inputs() {
    let json = br#"{"parameters":{"binary_data_output":true},"inputs":[
        {"name":"x","shape":[2],"datatype":"INT16","parameters":{"binary_data_size":4}},
        {"name":"y","shape":[1],"datatype":"INT8","data":[5]},
        {"name":"z","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":5}}],
        "outputs":[{"name":"p"},{"name":"q","parameters":{"binary_data":false,"classification":3}}]}"#;
    let body = [&json[..], &[1, 0, 2, 0], &[1, 0, 0, 0, b'a']].concat();
    let request = parse(&body, Some(json.len())).unwrap().read().unwrap();
    let data = |name| request.call.inputs.get(name).unwrap().data().clone();
    assert_eq!((data("x"), data("y")), (Data::Int16(vec![1, 2]), Data::Int8(vec![5])));
    assert_eq!(data("z"), Data::Bytes(vec![b"a".to_vec()]));
    let classes = Form::Classes { classes: 3, is_binary: false };
    assert_eq!(request.forms, Forms { named: vec![Form::Binary, classes], other: Form::Binary });
    for (cut, words) in [(1, "binary_data_size is 5, but 4 bytes are left"), (9, "binary_data_size is 4, but 0")] {
        let error = parse(&body[..body.len() - cut], Some(json.len())).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let longer = [&body[..], &[0]].concat();
    assert!(parse(&longer, Some(json.len())).unwrap_err().to_string().contains("1 bytes are left behind"));
    assert!(parse(&body, Some(body.len() + 1)).unwrap_err().to_string().contains("but the body has"));
    let both =
        br#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT8","data":[1],"parameters":{"binary_data_size":1}}]}"#;
    assert!(parse(both, None).unwrap_err().to_string().contains("it has both"));
    let shared =
        br#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT8","parameters":{"shared_memory_region":"a"}}]}"#;
    assert!(parse(shared, None).unwrap_err().to_string().contains("shared memory is not served"));
}

#[test]
fn long_lists_set_apart_make_the_same_request_and_what_is_odd_is_left_to_the_other_way() {
    let of = |list: &str, datatype: &str, more: &str| {
        let input =
            |name: &str| format!(r#"{{"data":{list},"name":"{name}","shape":[3000,1],"datatype":"{datatype}"}}"#);
        format!(r#"{{"id":"ü","inputs":[{},{}]{more}}}"#, input("data"), input("y"))
    };
    let apart = |body: &str| parse_apart(&numbers::set_apart(body.as_bytes())?)?.read().ok();
    let list = |element: &str| format!("[{}]", vec![element; 3000].join(","));
    let more = r#","outputs":[{"name":"y"}],"parameters":{"timeout":7}"#;
    for element in ["0.1234567890123456789", "-7", "[3]"] {
        let body = of(&list(element), "FP32", more);
        assert_eq!(apart(&body).unwrap(), decode(body.as_bytes()).unwrap(), "{element}");
    }
    for (list, datatype, more) in [
        (list("1"), "INT32", ""),                              // read by its type
        (list("\"NaN\""), "FP32", ""),                         // no number
        (list("01"), "FP32", ""),                              // no JSON
        (list("1e99"), "FP32", ""),                            // out of range
        (list("1") + "[]", "FP32", ""),                        // no JSON behind the list
        (list("1"), "FP32", r#","parameters":{"data":[01]}"#), // no JSON in a list that is no input
        (list("1"), "FP32", r#","parameters":{"data":[1],}"#), // no JSON behind the lists
        (list("1,1"), "FP32", ""),                             // too many
    ] {
        let body = of(&list, datatype, more);
        assert_eq!(apart(&body), None, "{datatype} {more} {}", &list[..9]);
    }
}

#[test]
fn python_s_names_for_what_is_no_number_are_read_and_texts_stay_as_they_are() {
    let json = br#"{"id":"NaN \" Infinity","inputs":[{"name":"x","shape":[3],"datatype":"FP32","data":[NaN,-Infinity, Infinity]},
        {"name":"y","shape":[1],"datatype":"INT8","parameters":{"binary_data_size":1}}]}"#;
    let body = [&json[..], b"N"].concat();
    assert!(parse(&body, Some(json.len())).is_err(), "it is no JSON");
    let named = |body: &[u8], json| Named::of(body, json, &Room::new(1 << 20)).unwrap();
    let Named { body, json, .. } = named(&body, Some(json.len())).unwrap();
    let request = parse(&body, json).unwrap().read().unwrap();
    assert_eq!(request.id.as_deref(), Some("NaN \" Infinity"));
    let Data::Fp32(x) = request.call.inputs.get("x").unwrap().data() else { panic!("floats") };
    assert!(x[0].is_nan() && x[1..] == [f32::NEG_INFINITY, f32::INFINITY], "{x:?}");
    assert_eq!(request.call.inputs.get("y").unwrap().data(), &Data::Int8(vec![78]));
    for (id, datatype, data, is_read) in [
        (r#""a""#, "FP32", "[[1,NaN],[2]]", true),
        (r#""NaN""#, "FP16", "[-Infinity]", true),
        (r#""a""#, "BYTES", "[NaN]", false),
        (r#""a""#, "BYTES", r#"["NaN", -Infinity]"#, false),
        ("NaN", "FP32", "[NaN]", false),
    ] {
        let input = |name: &str, datatype: &str, data: &str| {
            format!(r#"{{"name":"{name}","shape":[1],"datatype":"{datatype}","data":{data}}}"#)
        };
        let inputs =
            [input("z", "FP32", "[NaN]"), input("x", datatype, data), input("y", "FP64", "[1,Infinity]")].join(",");
        let text = format!(r#"{{"id":{id},"inputs":[{inputs}]}}"#);
        let quoted = named(text.as_bytes(), None).unwrap();
        let unread = parse(&quoted.body, None).unwrap();
        assert_eq!(unread.has_names_in_floats_only(text.as_bytes(), &quoted.body), is_read, "{text}");
    }
    for sound in [&br#"{"a":"NaN"}"#[..], b"{}", b"\"\\", b"[1,2]"] {
        assert!(named(sound, None).is_none());
    }
}

#[test]
fn lists_that_would_take_memory_without_end_are_refused_at_their_1025th_element() {
    let input = |shape: &str| format!(r#"{{"name":"x","shape":{shape},"datatype":"FP32","data":[1]}}"#);
    let list = |element: &str, count| format!("[{}]", vec![element; count].join(","));
    let body = |inputs: &str, outputs: &str| format!(r#"{{"inputs":{inputs},"outputs":{outputs}}}"#);
    let fits = body(&list(&input(&list("1", MOST)), 1), &list(r#"{"name":"y"}"#, MOST));
    assert_eq!(decode(fits.as_bytes()).unwrap().call.outputs.len(), MOST);
    for body in [
        body(&list(&input("[1]"), MOST + 1), "[]"),
        body(&list(&input("[1]"), 1), &list(r#"{"name":"y"}"#, MOST + 1)),
        body(&list(&input(&list("1", MOST + 1)), 1), "[]"),
    ] {
        let message = message(&body);
        assert!(message.contains("1024 inputs, outputs and dimensions of a shape at most"), "{message}");
    }
    // Nor are lists set apart for inputs that there will never be.
    assert!(numbers::set_apart(list(&input("[1]"), MOST + 1).as_bytes()).is_none());
}

#[test]
fn null_stands_for_a_member_left_out() {
    let body = r#"{"id":null,"parameters":null,"outputs":null,
        "inputs":[{"name":"x","shape":[1],"datatype":"BOOL","data":[true]}]}"#;
    let request = decode(body.as_bytes()).unwrap();
    assert_eq!((request.id, request.call.outputs, request.call.timeout), (None, vec![], None));
}

#[test]
fn a_timeout_is_microseconds_in_digits_and_zero_is_none() {
    let with = |timeout: &str| {
        let input = r#"[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]"#;
        decode(format!(r#"{{"parameters":{{"timeout":{timeout}}},"inputs":{input}}}"#).as_bytes())
            .map(|r| r.call.timeout)
    };
    assert_eq!(with("250"), Ok(Some(Duration::from_micros(250))));
    assert_eq!(with("\"250\""), Ok(Some(Duration::from_micros(250))));
    assert_eq!(with("0"), Ok(None));
    assert_eq!(with("null"), Ok(None));
    for bad in ["-1", "1.5", "\"\"", "\"1ms\"", "\"+1\"", "true", "[1]", "1e3", "99999999999999999999"] {
        assert!(with(bad).unwrap_err().to_string().contains("'timeout'"), "{bad}");
    }
}

#[test]
fn a_priority_is_a_level_in_digits_and_zero_is_the_default() {
    let with = |priority: &str| {
        let input = r#"[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]"#;
        decode(format!(r#"{{"parameters":{{"priority":{priority}}},"inputs":{input}}}"#).as_bytes())
            .map(|r| r.call.priority)
    };
    assert_eq!((with("1"), with("\"10\"")), (Ok(Priority::HIGHEST), Ok(Priority::LOWEST)));
    assert_eq!((with("0"), with("null")), (Ok(Priority::DEFAULT), Ok(Priority::DEFAULT)));
    // Other servers have more levels, or any number.
    assert_eq!((with("11"), with("18446744073709551615")), (Ok(Priority::LOWEST), Ok(Priority::LOWEST)));
    for bad in ["-1", "1.5", "\"\"", "\"high\"", "true", "[1]", "99999999999999999999"] {
        let message = with(bad).unwrap_err().to_string();
        assert!(message.contains("'priority' must be a whole number from 1, the most urgent, to 10"), "{bad}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    let input = |rest: &str| format!(r#"{{"inputs":[{{"name":"x",{rest}}}]}}"#);
    for (body, words) in [
        (String::new(), "not an infer request"),
        ("[]".into(), "not an infer request"),
        ("{}".into(), "missing field `inputs`"),
        (r#"{"inputs":[]}"#.into(), "at least one input"),
        (input(r#""shape":[1],"datatype":"FP32""#), "neither \"data\" nor the parameter \"binary_data_size\""),
        (input(r#""shape":[1],"datatype":"FP31","data":[1]"#), "input 'x': unknown datatype 'FP31'"),
        (input(r#""shape":[-1],"datatype":"FP32","data":[1]"#), "negative dimension"),
        (input(r#""shape":[2],"datatype":"FP32","data":[1]"#), "has 2 elements, but the data has 1"),
        (input(r#""shape":[],"datatype":"FP32","data":[1,2]"#), "has 1 elements, but the data has 2"),
        (input(r#""shape":[4294967296,4294967296],"datatype":"FP32","data":[1]"#), "can be addressed"),
        (input(r#""shape":[9223372036854775807],"datatype":"FP32","data":[1]"#), "can be addressed"),
        (input(r#""shape":[1],"datatype":"FP32","data":[NaN]"#), "not an infer request"),
        (input(r#""shape":[1],"datatype":"FP32","data":[1],"name":"y""#), "duplicate field"),
    ] {
        let message = message(&body);
        assert!(message.contains(words), "{body} gave {message}");
        assert!(!message.contains("struct"), "{message}");
    }
    let long = "C".repeat(5000);
    let text = message(&format!(
        r#"{{"inputs":[{{"name":"x","shape":[1],"datatype":"FP32","parameters":{{"binary_data":"{long}"}}}}]}}"#
    ));
    assert!(text.contains("CCC…") && text.len() < 200, "{text}");
    assert_eq!(decode(b"\xff").unwrap_err(), Error::Invalid("the body is not UTF-8".into()));
}

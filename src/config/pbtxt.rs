//! Protobuf's text format, as far as Triton's `config.pbtxt` is written in it: fields, messages, lists, comments.
//!
//! Source: <https://protobuf.dev/reference/protobuf/textformat-spec/>.

/// Deepest that messages may be nested.
const DEEPEST: usize = 32;

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// A number, a name, or a string without its quotes.
    Scalar(String),
    /// Fields in their order; a name may come several times.
    Message(Vec<(String, Value)>),
}

impl Value {
    /// Its text, of a scalar.
    pub(crate) fn scalar(&self) -> Option<&str> {
        if let Value::Scalar(text) = self { Some(text) } else { None }
    }

    /// Its fields; none of a scalar.
    pub(crate) fn fields(&self) -> &[(String, Value)] {
        if let Value::Message(fields) = self { fields } else { &[] }
    }
}

/// The fields of a file. A list is as many fields of its name. The error says in which line it is.
pub(crate) fn parse(text: &str) -> Result<Vec<(String, Value)>, String> {
    let mut reader = Reader { text: text.as_bytes(), at: 0 };
    let fields = reader.fields(0);
    fields.map_err(|what| {
        let line = text.as_bytes()[..reader.at.min(text.len())].iter().filter(|&&b| b == b'\n').count() + 1;
        format!("line {line}: {what}")
    })
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    /// The next byte that is neither space nor part of a comment.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.text.get(self.at)? {
                b'#' => self.at += self.text[self.at..].iter().take_while(|&&b| b != b'\n').count(),
                byte if byte.is_ascii_whitespace() => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_it = self.peek() == Some(byte);
        self.at += usize::from(is_it);
        is_it
    }

    fn fields(&mut self, depth: usize) -> Result<Vec<(String, Value)>, &'static str> {
        if depth > DEEPEST {
            return Err("messages are nested too deep");
        }
        let mut fields = Vec::new();
        loop {
            match self.peek() {
                None if depth == 0 => return Ok(fields),
                None => return Err("a message is not closed"),
                Some(b'}' | b'>') if depth > 0 => {
                    self.at += 1;
                    return Ok(fields);
                }
                Some(b',' | b';') => self.at += 1,
                Some(byte) if byte.is_ascii_alphabetic() || byte == b'_' => {
                    let name = self.word();
                    let has_colon = self.take(b':');
                    if self.take(b'[') {
                        while !self.take(b']') {
                            fields.push((name.clone(), self.value(depth, has_colon)?));
                            if !self.take(b',') && self.peek() != Some(b']') {
                                return Err("a list needs commas and an end");
                            }
                        }
                    } else {
                        let value = self.value(depth, has_colon)?;
                        fields.push((name, value));
                    }
                }
                Some(_) => return Err("a field's name is expected"),
            }
        }
    }

    fn value(&mut self, depth: usize, has_colon: bool) -> Result<Value, &'static str> {
        if self.take(b'{') || self.take(b'<') {
            return self.fields(depth + 1).map(Value::Message);
        }
        match self.peek() {
            Some(_) if !has_colon => Err("a colon or a message is expected"),
            Some(quote @ (b'"' | b'\'')) => {
                let mut text = self.string(quote)?;
                // Strings that follow each other are one.
                while let Some(quote @ (b'"' | b'\'')) = self.peek() {
                    text += &self.string(quote)?;
                }
                Ok(Value::Scalar(text))
            }
            Some(_) => {
                Some(self.word()).filter(|word| !word.is_empty()).map(Value::Scalar).ok_or("a value is expected")
            }
            None => Err("a value is expected"),
        }
    }

    fn word(&mut self) -> String {
        let rest = &self.text[self.at..];
        let is_part = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'+');
        let length = rest.iter().take_while(is_part).count();
        self.at += length;
        String::from_utf8_lossy(&rest[..length]).into_owned()
    }

    fn string(&mut self, quote: u8) -> Result<String, &'static str> {
        self.at += 1;
        let mut found = Vec::new();
        loop {
            match self.text.get(self.at) {
                None | Some(b'\n') => return Err("a string is not closed"),
                Some(&byte) if byte == quote => break,
                Some(b'\\') => {
                    // Names need no escape but these.
                    let escaped = self.text.get(self.at + 1).copied();
                    found.push(escaped.filter(|b| matches!(b, b'\\' | b'"' | b'\'')).ok_or("an escape is not known")?);
                    self.at += 2;
                }
                Some(&byte) => {
                    found.push(byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        String::from_utf8(found).map_err(|_| "a string is not UTF-8")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_messages_lists_and_comments_are_read() {
        let text = r#"
            # a model
            name: "a" 'b' max_batch_size: 8,
            dynamic_batching { }
            input [ { name: "x" dims: [ -1, 3 ] }, { name: "y\"" } ]
            version_policy: { specific: { versions: [1, 3] } } kind: KIND_CPU;
        "#;
        let scalar = |text: &str| Value::Scalar(text.to_owned());
        let field = |name: &str, value| (name.to_owned(), value);
        let fields = parse(text).unwrap();
        let x =
            Value::Message(vec![field("name", scalar("x")), field("dims", scalar("-1")), field("dims", scalar("3"))]);
        let versions = Value::Message(vec![field("versions", scalar("1")), field("versions", scalar("3"))]);
        assert_eq!(
            fields,
            [
                field("name", scalar("ab")),
                field("max_batch_size", scalar("8")),
                field("dynamic_batching", Value::Message(vec![])),
                field("input", x),
                field("input", Value::Message(vec![field("name", scalar("y\""))])),
                field("version_policy", Value::Message(vec![field("specific", versions)])),
                field("kind", scalar("KIND_CPU")),
            ]
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let deep = format!("\n{}", "a {".repeat(1_000_000));
        for (text, words) in [
            ("a: 1\nb", "line 2: a value is expected"),
            ("a 1", "line 1: a colon or a message is expected"),
            ("a {", "not closed"),
            ("}", "a field's name is expected"),
            ("a: [1", "a list needs commas"),
            ("a: [1 2]", "a list needs commas"),
            ("a: \"b", "a string is not closed"),
            ("a: \"\\x\"", "an escape"),
            (": 1", "a field's name"),
            (&deep, "nested too deep"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}

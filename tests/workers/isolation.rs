//! `isolation = "process"`: an ONNX model in a process of its own, by the program itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::folder::Folder;
use super::{HANGS, until};

/// The program, killed when the test ends.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask(address: &str, path: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANGS)).unwrap();
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n");
    write!(stream, "{head}\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap())
}

#[tokio::test]
async fn an_onnx_model_in_a_process_of_its_own_answers_as_in_the_server_and_comes_back_when_it_is_killed() {
    let folder = Folder::new();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/mlp.onnx");
    let settings = format!(
        "[[model]]\nname = 'own'\npath = '{file}'\nmax_latency_ms = 20000\nisolation = 'process'\nmax_memory_mb = 4000\n\
         [[model]]\nname = 'here'\npath = '{file}'\nmax_latency_ms = 20000\n"
    );
    std::fs::write(folder.path().join("uncork.toml"), settings).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_uncork"));
    command.current_dir(folder.path()).args(["serve", "--http", "127.0.0.1:0"]).stdin(Stdio::null());
    let mut child = Program(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut ready = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let address = ready.trim_end().rsplit_once("http://").unwrap().1.to_owned();
    let x: Vec<f32> = (0..128).map(|i| i as f32 / 64.0 - 1.0).collect();
    let inputs = json!({"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 64], "data": x}]}).to_string();
    let (_, here) = ask(&address, "/v2/models/here/infer", &inputs);
    let (status, own) = ask(&address, "/v2/models/own/infer", &inputs);
    assert_eq!(status, 200, "{own}");
    assert_eq!(own["outputs"], here["outputs"]);
    let server = child.0.id();

    let workers = || -> Vec<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{server}/task")).unwrap().flatten();
        let of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        tasks
            .flat_map(|task| of(task).split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
            .collect()
    };
    let worker = workers().first().copied().expect("it has a child");
    assert!(Command::new("kill").args(["-s", "KILL", &worker.to_string()]).status().unwrap().success());
    until("another worker", || workers().first().is_some_and(|&other| other != worker)).await;
    let (status, own) = ask(&address, "/v2/models/own/infer", &inputs);
    assert_eq!((status, &own["outputs"]), (200, &here["outputs"]), "{own}");
    let last = workers();
    assert!(Command::new("kill").args(["-s", "TERM", &server.to_string()]).status().unwrap().success());
    assert!(child.0.wait().unwrap().success());
    for worker in last {
        until("its end", || !std::path::Path::new(&format!("/proc/{worker}")).exists()).await;
    }
}

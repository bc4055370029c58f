//! A server of Restate at its defaults, reachable from this machine only.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use everturn_bench_protocol::BenchResult;

const START_MAX: Duration = Duration::from_secs(30);

/// A running server. It is killed when this process ends.
pub(crate) struct RestateServer {
    process: u32,
    ingress_port: u16,
    admin_port: u16,
    /// The port of the service in this process. A store that is opened again knows it.
    pub(crate) service_port: u16,
    _guard: Mutex<Child>,
}

impl RestateServer {
    /// Starts the server with its data in this folder.
    pub(crate) fn start(program: &Path, folder: &Path) -> BenchResult<Self> {
        let [ingress_port, admin_port, node_port] = [free_port()?, free_port()?, free_port()?];
        let kept = folder.join("service-port");
        let service_port = match std::fs::read_to_string(&kept) {
            Ok(port) => port.parse()?,
            Err(_) => free_port()?,
        };
        std::fs::write(&kept, service_port.to_string())?;
        let address = |port: u16| format!("127.0.0.1:{port}");
        // The shell kills the server when the pipe from this process closes, however this process ends.
        let mut child = Command::new("sh")
            .args(["-c", r#""$0" --no-logo & server=$!; echo $server; cat >/dev/null; kill -9 $server"#])
            .arg(program)
            .env("RESTATE_BASE_DIR", folder.join("restate"))
            .env("RESTATE_LISTEN_MODE", "tcp")
            .env("RESTATE_BIND_ADDRESS", address(node_port))
            .env("RESTATE_INGRESS__BIND_ADDRESS", address(ingress_port))
            .env("RESTATE_ADMIN__BIND_ADDRESS", address(admin_port))
            .env("RESTATE_DISABLE_TELEMETRY", "true")
            .env("RESTATE_LOG_FILTER", "error")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(folder.join("server.log"))?)
            .spawn()?;
        let mut process = String::new();
        let mut output = child.stdout.take().ok_or("the server has no output")?;
        while !process.ends_with('\n') {
            let mut byte = [0];
            output.read_exact(&mut byte)?;
            process.push(char::from(byte[0]));
        }
        let process = process.trim().parse()?;
        // What it logs is not read.
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Ok(Self { process, ingress_port, admin_port, service_port, _guard: Mutex::new(child) })
    }

    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    pub(crate) fn ingress_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ingress_port)
    }

    /// Tells the server where the service is, as soon as it answers.
    pub(crate) async fn register_service(&self) -> BenchResult<()> {
        let body = format!(r#"{{"uri":"http://127.0.0.1:{}","force":true}}"#, self.service_port);
        let deadline = Instant::now() + START_MAX;
        loop {
            let ports = (self.admin_port, self.ingress_port);
            let request = body.clone();
            let answer = tokio::task::spawn_blocking(move || {
                http(ports.0, "POST", "/deployments", &request)
                    .and_then(|()| http(ports.1, "GET", "/restate/health", ""))
            });
            match answer.await? {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

fn free_port() -> BenchResult<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// One request; fails if the answer is not a success.
fn http(port: u16, method: &str, path: &str, body: &str) -> BenchResult<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(START_MAX))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.lines().next().unwrap_or_default();
    if status.split(' ').nth(1).is_some_and(|code| code.starts_with('2')) {
        return Ok(());
    }
    Err(format!("{path}: {status}").into())
}

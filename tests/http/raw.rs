//! Requests byte by byte, for clients that do not behave.

use queen_tests::sidecar::Sidecar;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// A connection that has sent these bytes. Reading waits for 20 seconds at most.
pub fn send(http: &Sidecar, bytes: &str) -> TcpStream {
    let address = http.url().strip_prefix("http://").expect("an URL");
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    stream.write_all(bytes.as_bytes()).expect("bytes sent");
    stream
}

/// The head of a GET request.
pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: queen\r\n\r\n")
}

/// A POST request whose connection ends with the answer.
pub fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: queen\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// All that comes until the server ends the connection; None when it does not.
pub fn until_closed(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(_) => return None,
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Ends a connection by RST instead of FIN.
pub fn reset(stream: TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let length = size_of_val(&linger) as libc::socklen_t;
    // SAFETY: the descriptor is open, and the option is a `linger` of that length.
    let failed = unsafe {
        libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), length)
    };
    assert_eq!(failed, 0, "SO_LINGER");
}

/// SIGKILL to a process of ours.
pub fn kill(pid: i32) {
    // SAFETY: kill(2) touches no memory.
    let failed = unsafe { libc::kill(pid, libc::SIGKILL) };
    assert_eq!(failed, 0, "kill {pid}");
}

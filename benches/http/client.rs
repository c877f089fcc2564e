//! One kept connection.

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// A connection to the server.
pub struct Client {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    host: String,
}

impl Client {
    /// Connects to `http://host:port`.
    pub async fn connect(url: &str) -> std::io::Result<Client> {
        let host = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let stream = TcpStream::connect(&host).await?;
        stream.set_nodelay(true)?;
        let (reader, writer) = stream.into_split();
        Ok(Client { reader: BufReader::with_capacity(64 << 10, reader), writer, host })
    }

    /// Sends a request and reads the answer: status and body.
    pub async fn call(&mut self, method: &str, path: &str, body: &str) -> std::io::Result<(u16, Vec<u8>)> {
        let request =
            format!("{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n\r\n{body}", self.host, body.len());
        self.writer.write_all(request.as_bytes()).await?;
        let mut line = String::new();
        self.reader.read_line(&mut line).await?;
        let status = line.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or(std::io::ErrorKind::InvalidData)?;
        let mut length = 0;
        loop {
            line.clear();
            self.reader.read_line(&mut line).await?;
            match line.trim_end().split_once(':') {
                None => break,
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().unwrap_or(0);
                }
                Some(_) => {}
            }
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body).await?;
        Ok((status, body))
    }
}

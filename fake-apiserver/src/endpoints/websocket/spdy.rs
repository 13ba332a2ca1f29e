//! SPDY/3.1 for `port-forward`, `exec` and `attach`, compatible with client-go's `httpstream/spdy`. kubectl sends
//! `port-forward` over SPDY in a WebSocket; clients before 1.31 use SPDY directly for all three. A connection to a port
//! has a stream for data and a stream for errors; both contain the port number in their headers.

pub(super) mod command;
mod headers;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use self::command::{Command, Output};
use self::headers::{HeaderReader, no_headers};
use crate::api::streams::{Listening, PortHandler};

/// The first two bytes of control frames: version 3.
const CONTROL: [u8; 2] = [0x80, 0x03];
const HEADER_BYTES: usize = 8;
/// The flag of the last frame of a sender.
const FIN: u8 = 1;

const SYN_STREAM: u8 = 1;
const SYN_REPLY: u8 = 2;
const RST_STREAM: u8 = 3;
const PING: u8 = 6;
const HEADERS: u8 = 8;

/// The status `PROTOCOL_ERROR` of a reset.
const PROTOCOL_ERROR: u32 = 1;

/// Maximum number of received bytes that a connection buffers; above it the connection is closed.
const INPUT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum size of a control frame; frames of `port-forward` have about 70 bytes.
const CONTROL_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of concurrent streams.
const STREAMS_MAX: usize = 2_000;
/// Maximum number of bytes sent in one frame.
const CHUNK_BYTES: usize = 32 * 1024;

/// Error of a connection: the client violated the protocol or exceeded a limit.
#[derive(Debug)]
pub(super) struct Gone;

/// The service to which the streams are connected.
pub(super) enum Service {
    /// Ports of a Pod.
    Ports(Listening),
    /// A single command.
    Command(Command),
}

/// The server side of a SPDY connection: processes the client's frames, and produces the response frames.
pub(super) struct Session {
    service: Service,
    headers: HeaderReader,
    /// Received bytes of an incomplete frame.
    pending: Vec<u8>,
    streams: BTreeMap<u32, Stream>,
    /// Streams with data that their handlers have not processed yet.
    fed: BTreeSet<u32>,
    has_replied: bool,
    answer: Vec<u8>,
}

/// A stream that the client has opened.
struct Stream {
    /// Identifier of the connection to a port.
    request: String,
    /// The received data; `None` for an error stream.
    data: Option<Data>,
}

struct Data {
    handler: PortHandler,
    received: Vec<u8>,
}

impl Session {
    pub(super) fn new(service: Service) -> Self {
        Self {
            service,
            headers: HeaderReader::default(),
            pending: Vec::new(),
            streams: BTreeMap::new(),
            fed: BTreeSet::new(),
            has_replied: false,
            answer: Vec::new(),
        }
    }

    /// Processes received bytes, and returns the bytes to send.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Result<Bytes, Gone> {
        let data = self.streams.values().flat_map(|it| &it.data);
        let mut received: usize = data.map(|it| it.received.len()).sum();
        if let Service::Command(command) = &self.service {
            received += command.received();
        }
        if self.pending.len() + bytes.len() + received > INPUT_BYTES_MAX {
            return Err(Gone);
        }
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(bytes);
        let mut rest = pending.as_slice();
        while let Some(length) = frame_length(rest)? {
            let (frame, after) = rest.split_at(length);
            self.take(frame)?;
            rest = after;
        }
        let used = pending.len() - rest.len();
        pending.drain(..used);
        self.pending = pending;
        // Handlers are called once after all received frames have been processed, because a handler reads all pending
        // input.
        for id in std::mem::take(&mut self.fed) {
            self.ask(id, false);
        }
        self.advance();
        Ok(std::mem::take(&mut self.answer).into())
    }

    fn take(&mut self, frame: &[u8]) -> Result<(), Gone> {
        let (header, body) = frame.split_at(HEADER_BYTES);
        let is_last = header[4] & FIN != 0;
        if header[0] & 0x80 == 0 {
            let id = id(header)?;
            return self.take_data(id, body, is_last);
        }
        match header[3] {
            SYN_STREAM => {
                let id = id(body)?;
                // The headers follow the associated stream and a priority.
                let headers = self.headers.read(body.get(10..).ok_or(Gone)?)?;
                self.open(id, &headers)
            }
            // The headers are not used, but decompressed to keep the compression state in sync.
            SYN_REPLY | HEADERS => self.headers.read(body.get(4..).ok_or(Gone)?).map(drop),
            RST_STREAM => {
                self.streams.remove(&id(body)?);
                Ok(())
            }
            // Pings of clients have odd numbers; they are sent back.
            PING if id(body)? % 2 == 1 => {
                self.answer.extend_from_slice(frame);
                Ok(())
            }
            // Settings, window updates and GOAWAY are ignored.
            _ => Ok(()),
        }
    }

    fn open(&mut self, id: u32, headers: &BTreeMap<String, String>) -> Result<(), Gone> {
        if self.streams.len() >= STREAMS_MAX {
            return Err(Gone);
        }
        let get = |name: &str| headers.get(name).map_or("", String::as_str);
        let port = get("port").parse::<u16>().ok().filter(|it| *it > 0);
        let request = get("requestid").to_owned();
        let kind = get("streamtype");
        let is_known = match &mut self.service {
            Service::Ports(_) => port.is_some() && matches!(kind, "data" | "error"),
            Service::Command(command) => command.open(id, kind),
        };
        if !is_known {
            let reset = [id.to_be_bytes(), PROTOCOL_ERROR.to_be_bytes()].concat();
            self.control(RST_STREAM, &reset);
            return Ok(());
        }
        let block = no_headers(!self.has_replied);
        self.has_replied = true;
        self.control(SYN_REPLY, &[&id.to_be_bytes()[..], &block].concat());
        let (Service::Ports(listening), Some(port)) = (&self.service, port) else {
            return Ok(());
        };
        let data = match (kind, listening.get(&port)) {
            ("error", _) => None,
            (_, Some(handler)) => Some(Data {
                handler: PortHandler::clone(handler),
                received: Vec::new(),
            }),
            (_, None) => {
                let why = format!("an error occurred forwarding {port}: connection refused");
                self.end(id, &request, &[], &why);
                return Ok(());
            }
        };
        self.streams.insert(id, Stream { request, data });
        Ok(())
    }

    fn take_data(&mut self, id: u32, bytes: &[u8], is_last: bool) -> Result<(), Gone> {
        if let Service::Command(command) = &mut self.service {
            command.take(id, bytes, is_last);
            return Ok(());
        }
        let Some(Stream { data: Some(data), .. }) = self.streams.get_mut(&id) else {
            // Error streams do not receive data, and ended streams may still receive data.
            return Ok(());
        };
        data.received.extend_from_slice(bytes);
        self.fed.insert(id);
        if is_last {
            self.ask(id, true);
        }
        Ok(())
    }

    /// Calls a port's handler with the data received so far. If the handler returns `None`, the connection remains
    /// open, unless the client has sent all data.
    fn ask(&mut self, id: u32, is_last: bool) {
        let Some(Stream {
            request,
            data: Some(data),
        }) = self.streams.get(&id)
        else {
            // The stream was already closed or reset.
            return;
        };
        let answer = (data.handler)(&data.received);
        if answer.is_some() || is_last {
            let request = request.clone();
            self.end(id, &request, &answer.unwrap_or_default(), "");
        }
    }

    /// Continues a command, and sends its output.
    fn advance(&mut self) {
        let Service::Command(command) = &mut self.service else {
            return;
        };
        for output in command.advance() {
            match output {
                Output::Data(id, bytes) => self.send(id, &bytes),
                Output::End(id) => self.send_all(id, &[]),
            }
        }
    }

    /// Ends a connection to a port: sends its last data, and the error if there is one.
    fn end(&mut self, id: u32, request: &str, data: &[u8], error: &str) {
        self.streams.remove(&id);
        self.send_all(id, data);
        let is_of_errors = |(_, it): &(&u32, &Stream)| it.data.is_none() && it.request == request;
        if let Some(id) = self.streams.iter().find(is_of_errors).map(|(id, _)| *id) {
            self.streams.remove(&id);
            self.send_all(id, error.as_bytes());
        }
    }

    /// Sends the last data of a stream.
    fn send_all(&mut self, id: u32, bytes: &[u8]) {
        self.send(id, bytes);
        self.frame(id.to_be_bytes(), FIN, &[]);
    }

    fn send(&mut self, id: u32, bytes: &[u8]) {
        for chunk in bytes.chunks(CHUNK_BYTES) {
            self.frame(id.to_be_bytes(), 0, chunk);
        }
    }

    fn control(&mut self, kind: u8, body: &[u8]) {
        let [first, second] = CONTROL;
        self.frame([first, second, 0, kind], 0, body);
    }

    fn frame(&mut self, start: [u8; 4], flags: u8, body: &[u8]) {
        self.answer.extend_from_slice(&start);
        // A body is at most one chunk long.
        let length = u32::try_from(body.len()).unwrap_or_default().to_be_bytes();
        self.answer.extend_from_slice(&[flags, length[1], length[2], length[3]]);
        self.answer.extend_from_slice(body);
    }
}

/// Returns the length of the frame at the start of `bytes`, if it is complete.
fn frame_length(bytes: &[u8]) -> Result<Option<usize>, Gone> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([0, header[5], header[6], header[7]]);
    let end = HEADER_BYTES + usize::try_from(length).map_err(|_| Gone)?;
    // Checked before the whole body has arrived, because it may be long.
    let is_control = header[0] & 0x80 != 0;
    if is_control && (header[..2] != CONTROL || end > CONTROL_BYTES_MAX) {
        return Err(Gone);
    }
    Ok((bytes.len() >= end).then_some(end))
}

/// Returns the number at the start of a body or a data frame, without its first bit.
fn id(bytes: &[u8]) -> Result<u32, Gone> {
    let number = bytes.first_chunk().ok_or(Gone)?;
    Ok(u32::from_be_bytes(*number) & 0x7fff_ffff)
}

#[cfg(test)]
mod tests;

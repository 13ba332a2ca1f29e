//! Header blocks: names and values, compressed by one zlib stream for all frames in one direction.

use std::collections::BTreeMap;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use super::Gone;

/// The compression dictionary (section 2.6.10.1 of the SPDY/3 draft).
const DICTIONARY: &[u8] = include_bytes!("../../../../data/spdy_headers.bin");

/// Size of zlib's window, in bytes.
const WINDOW_BYTES: usize = 32 * 1024;

/// Maximum size of the headers of a frame; headers of `port-forward` have about 60 bytes.
const HEADERS_BYTES_MAX: usize = 64 * 1024;

/// The bit in zlib's second byte that indicates a dictionary; its checksum follows.
const HAS_DICTIONARY: u8 = 0x20;

/// Decodes the header blocks of a connection in order.
pub(super) struct HeaderReader {
    inflater: Box<DecompressorOxide>,
    window: Box<[u8]>,
    at: usize,
    has_begun: bool,
}

impl Default for HeaderReader {
    fn default() -> Self {
        let mut window = vec![0; WINDOW_BYTES];
        window[..DICTIONARY.len()].copy_from_slice(DICTIONARY);
        Self {
            inflater: Box::default(),
            window: window.into(),
            at: DICTIONARY.len(),
            has_begun: false,
        }
    }
}

impl HeaderReader {
    /// Reads the next block. Names are in lower case.
    pub(super) fn read(&mut self, block: &[u8]) -> Result<BTreeMap<String, String>, Gone> {
        let bytes = self.inflate(block)?;
        let mut rest = bytes.as_slice();
        let mut headers = BTreeMap::new();
        for _ in 0..number(&mut rest)? {
            let name = text(&mut rest)?;
            headers.insert(name, text(&mut rest)?);
        }
        Ok(headers)
    }

    fn inflate(&mut self, mut block: &[u8]) -> Result<Vec<u8>, Gone> {
        if !self.has_begun {
            // The checksum of the dictionary is not checked, because there is only one dictionary.
            let [_, flags, ..] = block else { return Err(Gone) };
            let header = if flags & HAS_DICTIONARY == 0 { 2 } else { 6 };
            block = block.get(header..).ok_or(Gone)?;
            self.has_begun = true;
        }
        let mut bytes = Vec::new();
        loop {
            let flags = TINFL_FLAG_HAS_MORE_INPUT;
            let (status, read, written) = decompress(&mut self.inflater, block, &mut self.window, self.at, flags);
            block = &block[read..];
            bytes.extend_from_slice(&self.window[self.at..self.at + written]);
            self.at = (self.at + written) % WINDOW_BYTES;
            if bytes.len() > HEADERS_BYTES_MAX {
                return Err(Gone);
            }
            match status {
                TINFLStatus::HasMoreOutput => {}
                TINFLStatus::NeedsMoreInput if block.is_empty() => return Ok(bytes),
                _ => return Err(Gone),
            }
        }
    }
}

fn number(rest: &mut &[u8]) -> Result<usize, Gone> {
    let (number, after) = rest.split_first_chunk().ok_or(Gone)?;
    *rest = after;
    usize::try_from(u32::from_be_bytes(*number)).map_err(|_| Gone)
}

fn text(rest: &mut &[u8]) -> Result<String, Gone> {
    let length = number(rest)?;
    let (text, after) = rest.split_at_checked(length).ok_or(Gone)?;
    *rest = after;
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// Returns a header block without headers, which all replies use. zlib stores it uncompressed.
pub(super) fn no_headers(is_first: bool) -> Vec<u8> {
    const ZLIB: &[u8] = &[0x78, 0x01];
    /// A stored, non-final zlib block of four bytes: its length, the complement of the length, and the number 0. An
    /// empty block follows, without which Go's reader would wait for more data.
    const STORED: &[u8] = &[0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let start = if is_first { ZLIB } else { &[] };
    [start, STORED].concat()
}

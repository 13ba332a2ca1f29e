//! `Scanner`: checks JSON in the form in which servers write it, in a single pass and without building values.
//!
//! For each text, the scanner either returns the same result as `serde_json`, or reports that the text is unusual, so
//! that `serde_json` has to parse it. Texts are unusual if they contain errors, deep nesting, or escapes in strings
//! that are read, which is rare. The scanner needs half the instructions and two thirds of the time that `serde_json`
//! needs to skip a value.

/// Reasons why a scan stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The text ends before the value is complete.
    Ended,
    /// The text contains syntax that the scanner does not support.
    Unusual,
}

/// A position in a text, with the state of the scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scanner<'a> {
    text: &'a [u8],
    pub(crate) at: usize,
    /// Index of the current block. `specials` has a set bit for each byte of this block that is special in strings, and
    /// `ahead` for each such byte of the next block.
    block: usize,
    specials: u64,
    ahead: u64,
    lengths: Lengths,
}

/// Lengths and positions of the first non-empty arrays in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lengths {
    begins: [u32; Self::MOST],
    counts: [u16; Self::MOST],
    len: usize,
}

impl Lengths {
    /// Maximum number of recorded arrays. A Pod with two containers has about thirty. Vectors of further arrays grow on
    /// demand.
    const MOST: usize = 40;

    const NONE: Self = Self {
        begins: [0; Self::MOST],
        counts: [0; Self::MOST],
        len: 0,
    };

    /// Returns the byte offset and the number of elements of the recorded array at `index`.
    pub(crate) fn get(&self, index: usize) -> Option<(usize, usize)> {
        let begin = *self.begins.get(..self.len)?.get(index)?;
        Some((begin as usize, self.counts[index] as usize))
    }

    /// Records an array with one element. Returns the index to pass to [`count`](Self::count) for its other elements.
    fn begin(&mut self, at: usize) -> u8 {
        let index = self.len;
        match (self.begins.get_mut(index), u32::try_from(at)) {
            (Some(begin), Ok(at)) => {
                *begin = at;
                self.counts[index] = 1;
                self.len += 1;
                index as u8
            }
            (Some(_) | None, Ok(_) | Err(_)) => u8::MAX,
        }
    }

    fn count(&mut self, index: u8) {
        if let Some(count) = self.counts.get_mut(usize::from(index)) {
            *count = count.saturating_add(1);
        }
    }
}

const BLOCK: usize = 64;

/// Returns a mask with a set bit for each byte that is a quote, a backslash or a control character.
fn specials(bytes: &[u8; BLOCK]) -> u64 {
    // The compiler vectorizes this expression.
    let found = bytes.map(|it| u8::from(it == b'"') | u8::from(it == b'\\') | u8::from(it < 0x20));
    let (words, _) = found.as_chunks::<8>();
    // Multiplication moves the lowest bit of each of the eight bytes into the highest byte, in order.
    words.iter().rev().fold(0, |mask, word| {
        let bits = u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask << 8 | bits
    })
}

/// Maximum nesting depth of arrays and objects.
const DEEPEST: usize = 64;

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self {
            text,
            at: 0,
            block: usize::MAX - 1,
            specials: 0,
            ahead: 0,
            lengths: Lengths::NONE,
        }
    }

    /// Returns the lengths of the arrays that were scanned.
    pub(crate) fn lengths(&self) -> &Lengths {
        &self.lengths
    }

    /// Skips white space, and returns the next byte without consuming it.
    #[inline(always)]
    pub(crate) fn peek(&mut self) -> Result<u8, Stop> {
        match self.text.get(self.at) {
            Some(byte) if *byte > b' ' => Ok(*byte),
            Some(_) => self.peek_further(),
            None => Err(Stop::Ended),
        }
    }

    #[cold]
    fn peek_further(&mut self) -> Result<u8, Stop> {
        loop {
            match self.text.get(self.at) {
                Some(b' ' | b'\n' | b'\t' | b'\r') => self.at += 1,
                Some(byte) => return Ok(*byte),
                None => return Err(Stop::Ended),
            }
        }
    }

    /// Skips white space, and consumes `byte`.
    #[inline(always)]
    pub(crate) fn expect(&mut self, byte: u8) -> Result<(), Stop> {
        if self.peek()? != byte {
            return Err(Stop::Unusual);
        }
        self.at += 1;
        Ok(())
    }

    /// Consumes a string without escapes. Returns the text between its quotes.
    #[inline]
    pub(crate) fn plain(&mut self) -> Result<&'a [u8], Stop> {
        self.expect(b'"')?;
        let start = self.at;
        let end = self.special()?;
        if self.text[end] != b'"' {
            return Err(Stop::Unusual);
        }
        self.at = end + 1;
        Ok(&self.text[start..end])
    }

    /// Calls `field` with the name of each field of an object. `field` must consume the value.
    pub(crate) fn fields(
        &mut self,
        mut field: impl FnMut(&mut Self, &'a [u8]) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        self.expect(b'{')?;
        if self.peek()? == b'}' {
            self.at += 1;
            return Ok(());
        }
        loop {
            let name = self.plain()?;
            self.expect(b':')?;
            field(self, name)?;
            let next = self.peek()?;
            self.at += 1;
            match next {
                b',' => {}
                b'}' => return Ok(()),
                _ => return Err(Stop::Unusual),
            }
        }
    }

    /// Consumes any value. Returns its text.
    pub(crate) fn value(&mut self) -> Result<&'a [u8], Stop> {
        self.peek()?;
        let start = self.at;
        self.skip()?;
        Ok(&self.text[start..self.at])
    }

    /// Consumes any value.
    pub(crate) fn skip(&mut self) -> Result<(), Stop> {
        // One bit for each open value, which is set for objects. The innermost value has the lowest bit.
        let (mut open, mut depth) = (0_u64, 0_usize);
        // For each open array, the index of its count.
        let mut counted = [0_u8; DEEPEST];
        loop {
            let first = self.peek()?;
            match first {
                b'"' => self.string()?,
                b'{' | b'[' => {
                    if depth == DEEPEST {
                        return Err(Stop::Unusual);
                    }
                    let begin = self.at;
                    self.at += 1;
                    if self.peek()? == first + 2 {
                        // The value is empty. The character codes of '}' and ']' are the codes of '{' and '[' plus two.
                        self.at += 1;
                    } else {
                        if first == b'[' {
                            counted[depth] = self.lengths.begin(begin);
                        }
                        depth += 1;
                        open = open << 1 | u64::from(first == b'{');
                        if first == b'{' {
                            self.name()?;
                        }
                        continue;
                    }
                }
                b't' => self.word(b"true")?,
                b'f' => self.word(b"false")?,
                b'n' => self.word(b"null")?,
                _ => self.number()?,
            }
            // A value has ended; the enclosing values may end as well.
            loop {
                if depth == 0 {
                    return Ok(());
                }
                let next = self.peek()?;
                self.at += 1;
                match next {
                    b',' => {
                        if open & 1 == 1 {
                            self.name()?;
                        } else {
                            self.lengths.count(counted[depth - 1]);
                        }
                        break;
                    }
                    b'}' if open & 1 == 1 => {}
                    b']' if open & 1 == 0 => {}
                    _ => return Err(Stop::Unusual),
                }
                depth -= 1;
                open >>= 1;
            }
        }
    }

    #[inline(always)]
    fn name(&mut self) -> Result<(), Stop> {
        if self.peek()? != b'"' {
            return Err(Stop::Unusual);
        }
        self.string()?;
        self.expect(b':')
    }

    /// Consumes a string. The next byte must be its opening quote.
    #[inline(always)]
    fn string(&mut self) -> Result<(), Stop> {
        self.at += 1;
        let end = self.special()?;
        self.at = end + 1;
        if self.text[end] == b'"' {
            return Ok(());
        }
        self.escapes()
    }

    /// Consumes the rest of a string after its first backslash or control character.
    #[cold]
    fn escapes(&mut self) -> Result<(), Stop> {
        loop {
            match self.text[self.at - 1] {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                _ => return Err(Stop::Unusual),
            }
            self.at = self.special()? + 1;
        }
    }

    fn escape(&mut self) -> Result<(), Stop> {
        let byte = *self.text.get(self.at).ok_or(Stop::Ended)?;
        self.at += 1;
        match byte {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => {
                let digits = self.text.get(self.at..self.at + 4).ok_or(Stop::Ended)?;
                self.at += 4;
                match digits.iter().all(u8::is_ascii_hexdigit) {
                    true => Ok(()),
                    false => Err(Stop::Unusual),
                }
            }
            _ => Err(Stop::Unusual),
        }
    }

    /// Returns the position of the next quote, backslash or control character.
    #[inline(always)]
    fn special(&mut self) -> Result<usize, Stop> {
        let mut block = self.at / BLOCK;
        if block != self.block {
            self.load(block);
        }
        let mut found = self.specials & (u64::MAX << (self.at % BLOCK));
        while found == 0 {
            block += 1;
            self.load(block);
            found = self.specials;
        }
        let at = block * BLOCK + found.trailing_zeros() as usize;
        if at < self.text.len() { Ok(at) } else { Err(Stop::Ended) }
    }

    /// Makes `block` the current block. Also computes the mask of the next block in advance.
    #[inline]
    fn load(&mut self, block: usize) {
        self.specials = if block == self.block.wrapping_add(1) {
            self.ahead
        } else {
            self.look(block)
        };
        self.ahead = self.look(block + 1);
        self.block = block;
    }

    /// Returns the mask of special bytes of a block. In the last block, all bytes beyond the text are special.
    #[inline]
    fn look(&self, block: usize) -> u64 {
        let rest = self.text.get(block * BLOCK..).unwrap_or_default();
        match rest.first_chunk::<BLOCK>() {
            Some(bytes) => specials(bytes),
            None => {
                let mut bytes = [0; BLOCK];
                bytes[..rest.len()].copy_from_slice(rest);
                specials(&bytes)
            }
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Stop> {
        let rest = &self.text[self.at..];
        if rest.starts_with(word) {
            self.at += word.len();
            Ok(())
        } else if word.starts_with(rest) {
            Err(Stop::Ended)
        } else {
            Err(Stop::Unusual)
        }
    }

    fn number(&mut self) -> Result<(), Stop> {
        if self.text[self.at] == b'-' {
            self.at += 1;
        }
        let start = self.at;
        let digits = self.digits()?;
        if digits > 1 && self.text[start] == b'0' {
            return Err(Stop::Unusual);
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.text.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.text.get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// Consumes at least one digit, and returns the number of digits.
    fn digits(&mut self) -> Result<usize, Stop> {
        let start = self.at;
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        match self.at - start {
            0 if start == self.text.len() => Err(Stop::Ended),
            0 => Err(Stop::Unusual),
            count => Ok(count),
        }
    }
}

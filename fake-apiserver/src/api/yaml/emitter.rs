//! `Emitter`: the text of a document, and the operations that append to it.

/// Column after which text is folded at the next space.
const BEST_WIDTH: usize = 80;

/// The text written so far, and the column at which it ends.
pub(super) struct Emitter {
    pub(super) out: String,
    pub(super) column: usize,
    /// Set if the last character was a separating space.
    pub(super) whitespace: bool,
    /// Set if the current line contains only indentation and `-`, `?` and `:`.
    pub(super) indention: bool,
}

impl Emitter {
    pub(super) fn push(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    pub(super) fn line_break(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }

    pub(super) fn is_beyond_width(&self) -> bool {
        self.column > BEST_WIDTH
    }

    /// Writes an indicator such as `-`. With `separate`, writes a space before the indicator if it is missing.
    pub(super) fn indicator(&mut self, sign: &str, separate: bool, is_indention: bool) {
        if separate && !self.whitespace {
            self.push(' ');
        }
        for c in sign.chars() {
            self.push(c);
        }
        self.whitespace = false;
        self.indention = self.indention && is_indention;
    }

    /// Moves to this column, on a new line unless the current line only contains indentation up to this column.
    pub(super) fn indent(&mut self, indent: usize) {
        if !self.indention || self.column > indent || (self.column == indent && !self.whitespace) {
            self.line_break();
        }
        while self.column < indent {
            self.push(' ');
        }
        self.whitespace = true;
        self.indention = true;
    }
}

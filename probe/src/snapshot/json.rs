//! Writes the parts of JSON that a snapshot needs.

use std::fmt::{self, Display};
use std::io::{self, Write};

/// Writes JSON piece by piece, and puts the commas between the pieces.
pub(super) struct Json<W> {
    out: W,
    /// Whether the innermost object or list is still empty.
    first: bool,
}

impl<W: Write> Json<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, first: true }
    }

    /// Ends the value with a line break. Returns the output.
    pub(super) fn end(mut self) -> io::Result<W> {
        self.out.write_all(b"\n")?;
        Ok(self.out)
    }

    /// Writes an object with the fields that `fill` writes.
    pub(super) fn object(
        &mut self,
        fill: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        self.within([b"{", b"}"], fill)
    }

    /// Writes a list. `each` writes an element for every item.
    pub(super) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut each: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.within([b"[", b"]"], |json| {
            items.into_iter().try_for_each(|item| {
                json.next()?;
                each(json, item)
            })
        })
    }

    /// Writes the name of a field. Its value must follow.
    pub(super) fn name(&mut self, name: &str) -> io::Result<&mut Self> {
        self.next()?;
        write!(self.out, "\"{name}\":")?;
        Ok(self)
    }

    /// Like [`Self::name`], for a name that may contain any characters.
    pub(super) fn text_name(&mut self, name: &str) -> io::Result<&mut Self> {
        self.next()?;
        write!(self.out, "\"{}\":", Escaped(name))?;
        Ok(self)
    }

    /// Writes a field with a number, or with a value that reads like a number in JSON.
    pub(super) fn plain(&mut self, name: &str, value: impl Display) -> io::Result<()> {
        self.name(name)?;
        write!(self.out, "{value}")
    }

    /// Writes a field with a text that needs no escaping.
    pub(super) fn word(&mut self, name: &str, value: impl Display) -> io::Result<()> {
        self.plain(name, format_args!("\"{value}\""))
    }

    /// Writes a field with any text.
    pub(super) fn text(&mut self, name: &str, text: &str) -> io::Result<()> {
        self.word(name, Escaped(text))
    }

    /// Writes a field with a number or null.
    pub(super) fn float(&mut self, name: &str, value: impl Into<Option<f64>>) -> io::Result<()> {
        match value.into().filter(|value| value.is_finite()) {
            Some(value) => self.plain(name, value),
            None => self.plain(name, "null"),
        }
    }

    /// Writes a value that is JSON already.
    pub(super) fn bare(&mut self, value: fmt::Arguments<'_>) -> io::Result<()> {
        self.out.write_fmt(value)
    }

    /// Writes any text as a value.
    pub(super) fn bare_text(&mut self, text: &str) -> io::Result<()> {
        self.bare(format_args!("\"{}\"", Escaped(text)))
    }

    fn within(
        &mut self,
        [open, close]: [&[u8]; 2],
        fill: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        self.out.write_all(open)?;
        self.first = true;
        fill(self)?;
        self.first = false;
        self.out.write_all(close)
    }

    fn next(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.first, false) {
            self.out.write_all(b",")?;
        }
        Ok(())
    }
}

/// Escapes a text for use between quotation marks (RFC 8259, 7).
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(|c: char| c < ' ' || c == '"' || c == '\\') {
            let (plain, from) = rest.split_at(at);
            let escaped = from.as_bytes()[0];
            write!(out, "{plain}\\u{escaped:04x}")?;
            rest = &from[1..];
        }
        out.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_put_together_with_commas_and_escapes() {
        let mut json = Json::new(Vec::new());
        json.object(|json| {
            json.plain("a", 7)?;
            json.text("b", "\"\\\n\u{1b}ö→\u{7f}")?;
            json.float("c", 0.1 + 0.2)?;
            json.float("d", f64::NAN)?;
            json.name("e")?.list([1, 2], |json, n| json.bare(format_args!("[{n},0]")))?;
            json.name("f")?.list([0; 0], |_, _| Ok(()))?;
            json.name("g")?.list([0, 1], |json, n| json.object(|json| json.plain("h", n)))?;
            json.name("i")?.object(|_| Ok(()))?;
            json.word("j", 1)
        })
        .unwrap();
        let text = String::from_utf8(json.end().unwrap()).unwrap();
        let expected = "{\"a\":7,\"b\":\"\\u0022\\u005c\\u000a\\u001bö→\u{7f}\",\
                        \"c\":0.30000000000000004,\"d\":null,\"e\":[[1,0],[2,0]],\"f\":[],\
                        \"g\":[{\"h\":0},{\"h\":1}],\"i\":{},\"j\":\"1\"}\n";
        assert_eq!(text, expected);
    }
}

//! Values of spans' fields: as amounts, and as parts of names.

use std::fmt::{Debug, Write};

use pfp::own::heap::{self, Grow, NoMemory, ShortText};
use tracing_core::field::Visit;
use tracing_core::span::Attributes;
use tracing_core::{Field, Metadata};

/// Maximum number of amounts of a point.
pub(crate) const MAX_AMOUNTS: usize = 4;

/// Values of the fields that are amounts: rounded, and clamped to the range of `u64`. A field
/// without a value counts as 0.
pub(crate) struct Amounts {
    names: &'static [&'static str],
    pub(crate) values: [u64; MAX_AMOUNTS],
    /// Whether each field has a value.
    pub(crate) has_value: [bool; MAX_AMOUNTS],
}

impl Amounts {
    pub(crate) fn of(names: &'static [&'static str]) -> Self {
        Self { names, values: [0; MAX_AMOUNTS], has_value: [false; MAX_AMOUNTS] }
    }

    fn note(&mut self, field: &Field, value: u64) {
        // A search of the few names is fast. Names are not compared by address, because each copy
        // of a literal has its own.
        if let Some(at) = self.names.iter().position(|name| *name == field.name()) {
            self.values[at] = value;
            self.has_value[at] = true;
        }
    }
}

impl Visit for Amounts {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.note(field, value.round() as u64);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.note(field, u64::try_from(value).unwrap_or(0));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.note(field, value);
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.note(field, u64::try_from(value.max(0)).unwrap_or(u64::MAX));
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.note(field, u64::try_from(value).unwrap_or(u64::MAX));
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

/// Fields whose values are part of the names of points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldsOf {
    /// Name of the spans, with or without the target. Empty for all spans.
    span: String,
    names: Vec<String>,
}

impl FieldsOf {
    pub(crate) fn are_of(&self, metadata: &Metadata<'_>) -> bool {
        let rest = self.span.strip_suffix(metadata.name());
        self.span.is_empty()
            || rest.is_some_and(|rest| {
                rest.is_empty() || rest.strip_suffix("::") == Some(metadata.target())
            })
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }
}

/// Parses `system{name},request{method path}`. `None` if the text has another form.
pub(crate) fn parse(text: &str) -> Result<Option<Vec<FieldsOf>>, NoMemory> {
    let mut all = Vec::new();
    for text in text.split(',') {
        let inner = text.trim().strip_suffix('}');
        let Some((span, names)) = inner.and_then(|text| text.split_once('{')) else {
            return Ok(None);
        };
        if names.trim().is_empty() || names.contains(['{', '}']) {
            return Ok(None);
        }
        let names = texts(names.split_whitespace())?;
        all.try_push(FieldsOf { span: heap::text(span.trim())?, names })?;
    }
    Ok(Some(all))
}

/// Copies texts.
pub(crate) fn texts<'a>(of: impl IntoIterator<Item = &'a str>) -> Result<Vec<String>, NoMemory> {
    let mut all = Vec::new();
    for text in of {
        all.try_push(heap::text(text)?)?;
    }
    Ok(all)
}

/// Maximum length of a field's text in bytes.
const LONGEST: usize = 200;

/// Text of one field, or of several fields separated by spaces.
pub(crate) struct FieldText<'a> {
    names: &'a [&'static str],
    text: Option<Text>,
}

/// Text of fields, stored without the heap.
pub(crate) type Text = ShortText<LONGEST>;

impl<'a> FieldText<'a> {
    /// The text of a span's field, if it has a value.
    pub(crate) fn by(span: &Attributes<'_>, name: &'static str) -> Option<Text> {
        FieldText::together(span, &[name])
    }

    /// The texts of several fields of a span, in the span's order. `None` if no field has a value.
    pub(crate) fn together(span: &Attributes<'_>, names: &'a [&'static str]) -> Option<Text> {
        let mut found = Self { names, text: None };
        span.record(&mut found);
        found.text
    }

    fn add(&mut self, field: &Field, value: std::fmt::Arguments<'_>) {
        if self.names.contains(&field.name()) {
            let text = self.text.get_or_insert_with(|| Text::of(format_args!("")));
            let space = if text.as_bytes().is_empty() { "" } else { " " };
            // If formatting fails, the text up to the failure counts.
            let _ = write!(text, "{space}{value}");
        }
    }
}

impl Visit for FieldText<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, format_args!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_spans_are_read() {
        let of = |span: &str, names: &[&str]| FieldsOf {
            span: span.to_owned(),
            names: names.iter().map(|&name| name.to_owned()).collect(),
        };
        let both = vec![of("system", &["name"]), of("http::request", &["method", "path"])];
        assert_eq!(parse("system{name}, http::request{method path}"), Ok(Some(both)));
        assert_eq!(parse("{name}"), Ok(Some(vec![of("", &["name"])])));
        for wrong in ["", "system", "system{}", "system{name},", "system{a{b}}", "{name"] {
            assert_eq!(parse(wrong), Ok(None), "{wrong}");
        }
    }
}

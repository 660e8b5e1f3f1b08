//! What the fields of a span say.

use std::fmt::{Debug, Write};

use tracing_core::Field;
use tracing_core::field::Visit;
use tracing_core::span::Attributes;

/// Amounts that a point can have.
pub(crate) const MAX_AMOUNTS: usize = 4;

/// The numbers of fields that are amounts: 0 while a field says nothing or less than that, the
/// nearest whole number, and no more than `u64::MAX`.
pub(crate) struct Amounts {
    names: &'static [&'static str],
    pub(crate) values: [u64; MAX_AMOUNTS],
    /// Which of them were said.
    pub(crate) said: [bool; MAX_AMOUNTS],
}

impl Amounts {
    pub(crate) fn of(names: &'static [&'static str]) -> Self {
        Self { names, values: [0; MAX_AMOUNTS], said: [false; MAX_AMOUNTS] }
    }

    fn note(&mut self, field: &Field, value: u64) {
        // Names are few, and their addresses differ from one copy to the next.
        if let Some(at) = self.names.iter().position(|name| *name == field.name()) {
            self.values[at] = value;
            self.said[at] = true;
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

/// The text of one field.
pub(crate) struct Said {
    name: &'static str,
    text: Option<String>,
}

impl Said {
    /// What the span says in this field; none if nothing.
    pub(crate) fn by(span: &Attributes<'_>, name: &'static str) -> Option<String> {
        let mut said = Self { name, text: None };
        span.record(&mut said);
        said.text
    }
}

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == self.name {
            self.text = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == self.name {
            let mut text = String::new();
            // A value that cannot be written says what it has written.
            let _ = write!(text, "{value:?}");
            self.text = Some(text);
        }
    }
}

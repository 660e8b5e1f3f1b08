//! Validates the settings of a file one by one, so that a wrong setting does not disable the
//! others.

use serde::Deserialize as _;
use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue, Error};

use super::Config;

/// A setting, and its section if it has one.
#[derive(Clone)]
pub(super) struct SettingEntry<'t> {
    section: Option<Spanned<DeString<'t>>>,
    key: Spanned<DeString<'t>>,
    value: Spanned<DeValue<'t>>,
}

impl<'t> SettingEntry<'t> {
    /// Splits a file into its settings. A section's name that has a plain value instead of a table
    /// counts as a setting.
    pub(super) fn all(settings: DeTable<'t>) -> Vec<Self> {
        let mut all = Vec::new();
        for (key, value) in settings {
            match value.get_ref() {
                DeValue::Table(section) if Config::SECTIONS.contains(&&**key.get_ref()) => {
                    let entries = section.clone().into_iter();
                    let section = Some(key);
                    all.extend(entries.map(|(key, value)| Self {
                        section: section.clone(),
                        key,
                        value,
                    }));
                }
                _ => all.push(Self { section: None, key, value }),
            }
        }
        all.sort_by_key(|entry| entry.key.span().start);
        all
    }

    /// Reads these settings as one configuration.
    pub(super) fn read(entries: &[Self]) -> Result<Config, Error> {
        let mut all = DeTable::new();
        for Self { section, key, value } in entries {
            let table = match section {
                None => &mut all,
                Some(section) => {
                    let empty = Spanned::new(section.span(), DeValue::Table(DeTable::new()));
                    match all.entry(section.clone()).or_insert(empty).get_mut() {
                        DeValue::Table(table) => table,
                        _ => continue,
                    }
                }
            };
            table.insert(key.clone(), value.clone());
        }
        Config::deserialize(toml::de::Deserializer::from(Spanned::new(0..0, all)))
    }

    /// Removes a wrong setting. If there are settings whose removal makes all others valid, removes
    /// the last of them. Otherwise removes the first setting that is invalid by itself. Returns the
    /// setting's offset in the text, and the error.
    pub(super) fn drop_wrong(entries: &mut Vec<Self>, error: &Error) -> (usize, String) {
        let others = |place: usize| {
            let mut others = entries.clone();
            others.remove(place);
            others
        };
        let alone = |place: &usize| Self::read(&entries[*place..=*place]);
        let is_only = (0..entries.len()).rfind(|place| Self::read(&others(*place)).is_ok());
        let place = is_only
            .or_else(|| (0..entries.len()).find(|place| alone(place).is_err()))
            .unwrap_or(entries.len().saturating_sub(1));
        let message = match is_only {
            Some(_) => error.message().to_owned(),
            None => {
                alone(&place).err().map_or(error.message().to_owned(), |it| it.message().into())
            }
        };
        let entry = entries.remove(place);
        (entry.place_of(&message), message)
    }

    /// The offset of the wrong part of this setting: an element of a list, or else its key.
    fn place_of(&self, message: &str) -> usize {
        let is_wrong = |element: &&Spanned<DeValue<'t>>| {
            let mut list = DeArray::new();
            list.push((*element).clone());
            let value = Spanned::new(element.span(), DeValue::Array(list));
            let alone = Self { value, ..self.clone() };
            Self::read(&[alone]).is_err_and(|error| error.message() == message)
        };
        let elements = self.value.get_ref().as_array().into_iter().flat_map(|list| list.iter());
        let place = elements.clone().find(is_wrong).map_or(self.key.span(), Spanned::span);
        place.start
    }
}

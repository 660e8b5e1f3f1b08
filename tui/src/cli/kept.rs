//! What a person chose on the screen, kept for next time: the columns of the table, and what it
//! is sorted by. Settings, variables and options come before it; what is printed is not touched.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::{env, io};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::state_folder;
use crate::columns::{Column, Sorting};
use crate::export::whole::{self, Overwrite};
use crate::{input, variables};

const FILE: &str = "chosen.json";
/// It is never longer.
const MAX_BYTES: u64 = 4096;

/// What was chosen; what was never chosen is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Kept {
    columns: Option<Vec<String>>,
    sort: Option<String>,
    /// Greatest first; none for the way that the column has.
    descending: Option<bool>,
}

impl Kept {
    /// What was kept. A file that cannot be read or understood keeps nothing.
    pub(super) fn load() -> Self {
        Self::read().unwrap_or_default()
    }

    /// What was kept, or why that is not known.
    ///
    /// # Errors
    ///
    /// There is a file that cannot be read or understood.
    pub(super) fn read() -> Result<Self> {
        place().map_or_else(|| Ok(Self::default()), |path| Self::read_from(&path))
    }

    fn read_from(path: &Path) -> Result<Self> {
        let text = match input::read(path, MAX_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            text => text.map_err(anyhow::Error::from),
        };
        text.and_then(|text| Ok(serde_json::from_slice(&text)?)).with_context(|| {
            format!(
                "{}: expected the columns and the sorting that were chosen on the screen; it is \
                 ignored, and replaced when others are chosen",
                path.display()
            )
        })
    }

    /// The columns, if all of them are known.
    pub(super) fn columns(&self) -> Option<Vec<Column>> {
        let columns = self.columns.iter().flatten().map(|word| Column::of_word(word).ok());
        columns.collect::<Option<Vec<_>>>().filter(|columns| !columns.is_empty())
    }

    pub(super) fn sorting(&self) -> Option<Sorting> {
        let column = Column::of_word(self.sort.as_ref()?).ok().filter(|column| column.sorts())?;
        let own = Sorting::by(column);
        Some(Sorting { descending: self.descending.unwrap_or(own.descending), ..own })
    }

    /// Keeps what differs from how the screen began. Nobody is told where that fails: the next
    /// screen begins as this one did.
    pub(super) fn keep(before: (&[Column], Sorting), after: (&[Column], Sorting)) {
        let mut kept = Self::load();
        if after.0 != before.0 {
            let words = || after.0.iter().map(|column| column.word().to_owned()).collect();
            kept.columns = (after.0 != Column::DEFAULT).then(words);
        }
        if after.1 != before.1 {
            let Sorting { column, descending } = after.1;
            kept.sort = Some(column.word().to_owned());
            kept.descending = (after.1 != Sorting::by(column)).then_some(descending);
        }
        if kept != Self::load() {
            let _ = kept.save();
        }
    }

    fn save(&self) -> io::Result<()> {
        let Some(path) = place() else { return Ok(()) };
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let text = serde_json::to_vec(self)?;
        whole::write(&path, Overwrite::Yes, |out| out.write_all(&text)).map_err(io::Error::other)
    }
}

/// Nothing is kept where settings are switched off.
fn place() -> Option<PathBuf> {
    let is_off = env::var_os(variables::TOP_CONFIG).is_some_and(|value| value.is_empty());
    (!is_off).then(|| state_folder().join(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_understood_is_told_of() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        assert_eq!(Kept::read_from(&path).expect("none is no error"), Kept::default());
        for (text, why) in [("{\"sort\": 7}", "invalid type"), ("{", "EOF")] {
            std::fs::write(&path, text).expect("it can be written");
            let error = format!("{:#}", Kept::read_from(&path).expect_err(text));
            assert!(error.contains("chosen.json: expected the columns"), "{error}");
            assert!(error.contains(why), "{error}");
        }
        std::fs::write(&path, "{\"sort\": \"count\"}").expect("it can be written");
        assert_eq!(Kept::read_from(&path).expect("it is right").sort.as_deref(), Some("count"));
    }
}

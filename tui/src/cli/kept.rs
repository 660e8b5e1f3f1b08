//! The user's choices on the screen, saved for the next run: columns and order of each table.
//! Settings, variables and options override them; printed output ignores them.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::{env, io};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::common::Screen;
use crate::variables;
use pfp_model::columns::Column;
use pfp_model::columns::sorting::Sorting;
use pfp_model::grid::TableLayout;
use pfp_read::files;
use pfp_read::files::atomic_file::{self, Existing};
use pfp_read::files::input;
use pfp_read::source::namespaces::effective_user;

const FILE: &str = "chosen.json";
/// Maximum size of the file, in bytes.
const MAX_BYTES: u64 = 16_384;

/// The choices for one table; fields without a choice are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct KeptTable {
    columns: Option<Vec<String>>,
    sort: Option<String>,
    /// Whether the greatest comes first; `None` for the column's natural order.
    descending: Option<bool>,
}

/// The choices for all tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Kept {
    #[serde(flatten)]
    points: KeptTable,
    /// The tables by the names of their screens.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tables: BTreeMap<String, KeptTable>,
}

/// The choices for the tables of all screens.
pub(super) type Tables = Vec<(Screen, TableLayout)>;

/// The current choices of an app.
pub(super) fn tables(app: &App) -> Tables {
    let table = |screen: &Screen| Some((*screen, app.screens.get(*screen).table()?.clone()));
    Screen::ALL.iter().filter_map(table).collect()
}

fn name(screen: Screen) -> String {
    format!("{screen:?}").to_lowercase()
}

impl KeptTable {
    fn of(chosen: &TableLayout) -> Self {
        let (columns, sorted) = chosen.own();
        Self {
            columns: columns.map(|keys| keys.into_iter().map(str::to_owned).collect()),
            sort: sorted.map(|sorted| sorted.key.to_owned()),
            descending: sorted.map(|sorted| sorted.descending),
        }
    }

    fn put(&self, chosen: &mut TableLayout) {
        let known = |key: &str| chosen.columns().any(|(heading, _)| heading.key == key);
        let columns = self.columns.iter().flatten().map(String::as_str);
        if columns.clone().next().is_some() && columns.clone().all(known) {
            chosen.show(&columns.collect::<Vec<_>>());
        }
        if let Some(key) = &self.sort {
            chosen.sort_by(key, self.descending);
        }
    }
}

impl Kept {
    /// The saved choices; empty if the file cannot be read or parsed.
    pub(super) fn load() -> Self {
        Self::read().unwrap_or_default()
    }

    /// The saved choices, or why they cannot be read.
    ///
    /// # Errors
    ///
    /// If the file exists and cannot be read or parsed.
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

    /// The columns of the table of points, if all are known.
    pub(super) fn columns(&self) -> Option<Vec<Column>> {
        let columns = self.points.columns.iter().flatten();
        let columns = columns.map(|word| Column::of_word(word).ok());
        columns.collect::<Option<Vec<_>>>().filter(|columns| !columns.is_empty())
    }

    /// The sorting of the table of points.
    pub(super) fn sorting(&self) -> Option<Sorting> {
        let word = self.points.sort.as_ref()?;
        let column = Column::of_word(word).ok().filter(|column| column.sorts())?;
        let own = Sorting::by(column);
        Some(Sorting { descending: self.points.descending.unwrap_or(own.descending), ..own })
    }

    /// Restores the choices for the tables of all screens except that of points.
    pub(super) fn restore(&self, app: &mut App) {
        for screen in Screen::ALL {
            let table = app.screens.get_mut(screen).table_mut();
            if let Some((kept, table)) = self.tables.get(&name(screen)).zip(table) {
                kept.put(table);
            }
        }
    }

    /// Saves the choices that changed. Errors are ignored: the next run then starts with the same
    /// choices as this run.
    pub(super) fn keep(before: &Tables, after: &Tables) {
        let mut kept = Self::load();
        for (screen, table) in after.iter().filter(|table| !before.contains(table)) {
            let own = KeptTable::of(table);
            match screen {
                Screen::Points => kept.points = own,
                _ if own == KeptTable::default() => drop(kept.tables.remove(&name(*screen))),
                _ => drop(kept.tables.insert(name(*screen), own)),
            }
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
        atomic_file::write(&path, Existing::Replace, |out| out.write_all(&text))
            .map_err(io::Error::other)
    }
}

/// The folder for state, as opposed to settings and cache, by the XDG specification.
pub(super) fn state_folder() -> PathBuf {
    files::folder("XDG_STATE_HOME", ".local/state").map_or_else(
        || env::temp_dir().join(format!("pfp-run-{}", effective_user())),
        |folder| folder.join("pfp"),
    )
}

/// The path of the file of choices. `None` if an empty `PFP_TOP_CONFIG` switches settings off: then
/// nothing is saved.
fn place() -> Option<PathBuf> {
    let is_off = env::var_os(variables::TOP_CONFIG).is_some_and(|value| value.is_empty());
    (!is_off).then(|| state_folder().join(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screens::Screens;

    #[test]
    fn an_unreadable_file_of_choices_is_reported() {
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
        assert_eq!(
            Kept::read_from(&path).expect("it is right").points.sort.as_deref(),
            Some("count")
        );
    }

    #[test]
    fn choices_are_restored_and_defaults_are_not_saved() {
        let mut screens = Screens::default();
        let table = screens.get_mut(Screen::Threads).table_mut().expect("it has one");
        assert_eq!(KeptTable::of(table), KeptTable::default());
        table.check("clock");
        table.sort_by("tid", Some(true));
        let (kept, chosen) = (KeptTable::of(table), table.clone());
        let text = serde_json::to_string(&Kept {
            tables: BTreeMap::from([(name(Screen::Threads), kept)]),
            ..Kept::default()
        });
        let read: Kept = serde_json::from_str(&text.expect("it can be written")).expect("and read");
        let mut screens = Screens::default();
        let table = screens.get_mut(Screen::Threads).table_mut().expect("it has one");
        read.tables["threads"].put(table);
        assert_eq!((table.shown(), table.sorted()), (chosen.shown(), chosen.sorted()));
        // A column that this version does not know is ignored.
        let kept =
            KeptTable { columns: Some(vec!["name".into(), "x".into()]), ..KeptTable::default() };
        kept.put(table);
        assert_eq!(table.shown(), chosen.shown());
    }
}

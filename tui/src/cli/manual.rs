//! Completions for shells, and manual pages.
//!
//! Both are generated from the definition that parses the command line, so they always agree with
//! it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use super::command_line::Cli;
use super::output::print;

/// Prints a shell's completion script.
pub(super) fn completions(shell: Shell) -> Result<u8> {
    // Leave out the hidden commands: scripts generated from the whole of `Cli` would offer them.
    let all = Cli::command();
    let mut shown = clap::Command::new("pfp-top")
        .version(env!("CARGO_PKG_VERSION"))
        .args(all.get_arguments().cloned())
        .subcommands(all.get_subcommands().filter(|command| !command.is_hide_set()).cloned());
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown, "pfp-top", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(0)
}

/// Prints the manual page, or writes one for each command into a folder.
pub(super) fn man(folder: Option<&Path>) -> Result<u8> {
    let Some(folder) = folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page)?;
        print(&String::from_utf8_lossy(&page))?;
        return Ok(0);
    };
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), folder))
        .with_context(|| format!("{} cannot be written into", folder.display()))?;
    Ok(0)
}

//! Manual pages, made from the command line that `lockctl` accepts.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;

use crate::exit::Failure;

/// Writes a page for `lockctl` and one for each of its commands.
pub(crate) fn write(command: Command, folder: &Path) -> Result<(), Failure> {
    let written = pages(command).and_then(|pages| {
        let mut pages = pages.iter();
        pages.try_for_each(|(name, text)| fs::write(folder.join(name), text))
    });
    let failed = |error| Failure::system(&format!("write to {}", folder.display()), &error);
    written.map_err(failed)
}

/// The names of the files, and their texts.
fn pages(command: Command) -> io::Result<Vec<(String, String)>> {
    // Its page would only repeat the others.
    let mut command = command.disable_help_subcommand(true);
    // Gives each command its full name, such as `lockctl-run`, and the options that all have.
    command.build();
    let commands = command.get_subcommands().cloned().chain([command.clone()]);
    commands.map(page).collect()
}

fn page(mut command: Command) -> io::Result<(String, String)> {
    let usage = command.render_usage().to_string();
    let page = Man::new(command).manual("Locks");
    let mut text = Vec::new();
    page.render(&mut text)?;
    let text = with_usage(&String::from_utf8_lossy(&text), &usage);
    let text = text.ok_or_else(|| io::Error::other("a manual page has no synopsis"))?;
    // What stands below the options of `lockctl help`.
    let text = text.replace("\n.SH EXTRA\n", "\n.SH NOTES\n");
    Ok((page.get_filename(), text))
}

/// The page with another synopsis. Its own one leaves out the `--` before a command, and what can be
/// repeated.
fn with_usage(page: &str, usage: &str) -> Option<String> {
    let (before, rest) = page.split_once(".SH SYNOPSIS\n")?;
    let (_, after) = rest.split_once("\n.SH ")?;
    let usage = usage.trim_start_matches("Usage: ").replace('-', "\\-");
    Some(format!("{before}.SH SYNOPSIS\n{usage}\n.SH {after}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::pages;
    use crate::args::Arguments;

    #[test]
    fn every_command_has_a_page_with_all_of_its_options() {
        let pages = pages(Arguments::command()).unwrap();
        let page = |name: &str| {
            let found = pages.iter().find(|(it, _)| it == name);
            &found.unwrap_or_else(|| panic!("no {name}")).1
        };
        let mut command = Arguments::command().disable_help_subcommand(true);
        command.build();
        for subcommand in command.get_subcommands() {
            let name = subcommand.get_name();
            assert!(
                page("lockctl.1").contains(&format!("lockctl\\-{name}(1)")),
                "{name}"
            );
            let text = page(&format!("lockctl-{name}.1"));
            for option in subcommand.get_opts() {
                let option = option.get_long().unwrap().replace('-', "\\-");
                assert!(
                    text.contains(&format!("\\-\\-{option}")),
                    "{name} --{option}"
                );
            }
        }
        assert_eq!(pages.len(), command.get_subcommands().count() + 1);
        for name in ["lockctl-run.1", "lockctl-ls.1"] {
            assert!(page(name).contains("LOCKCTL_CONNECT"), "{name}");
        }
        let run = page("lockctl-run.1");
        assert!(run.contains("\nlockctl run [OPTIONS] <PATH>... \\-\\- <COMMAND>...\n"));
        assert!(run.contains("Exit codes"));
    }
}

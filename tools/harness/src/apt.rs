// SPDX-License-Identifier: MIT OR Apache-2.0
//! The package sources of the machine, and others of the same mirror.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;

/// The release of Debian that the harness knows.
pub const RELEASE: &str = "bookworm";

/// One entry of the machine's package sources, as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A stanza of a `.sources` file.
    Stanza(String),
    /// A line of a `.list` file.
    Line(String),
}

impl Source {
    /// The entries of one file; `is_list` tells which format it has.
    fn parse(text: &str, is_list: bool) -> Vec<Self> {
        let kept = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        if is_list {
            let lines = kept.map(str::trim).filter(|line| line.starts_with("deb "));
            return lines.map(|line| Self::Line(line.to_owned())).collect();
        }
        let kept: Vec<_> = kept.map(str::trim_end).collect();
        let stanzas = kept.split(|line| line.is_empty()).map(|lines| lines.join("\n"));
        let wanted = |stanza: &String| {
            let enabled = field(stanza, "Enabled").is_none_or(|value| value != "no");
            enabled && words(stanza, "Types").contains(&"deb")
        };
        stanzas.filter(wanted).map(Self::Stanza).collect()
    }

    /// The suites that it offers.
    fn suites(&self) -> Vec<&str> {
        match self {
            Self::Stanza(text) => words(text, "Suites"),
            Self::Line(text) => split_line(text).map_or(vec![], |(_, suite, _)| vec![suite]),
        }
    }

    /// Whether it offers Debian's main component.
    fn has_main(&self) -> bool {
        match self {
            Self::Stanza(text) => words(text, "Components").contains(&"main"),
            Self::Line(text) => split_line(text)
                .is_some_and(|(_, _, rest)| rest.split_whitespace().any(|w| w == "main")),
        }
    }

    /// Whether it is a part of the release itself, not somebody else's packages.
    fn is_release(&self) -> bool {
        let known = |suite: &&str| {
            matches!(suite.strip_prefix(RELEASE), Some("" | "-updates" | "-security"))
        };
        self.has_main() && !self.suites().is_empty() && self.suites().iter().all(known)
    }

    /// The same place with another suite.
    fn with_suite(&self, suite: &str) -> Self {
        match self {
            Self::Stanza(text) => {
                let lines = text.lines().map(|line| match line.split_once(':') {
                    Some((key, _)) if key.eq_ignore_ascii_case("Suites") => {
                        format!("Suites: {suite}")
                    }
                    Some((key, _)) if key.eq_ignore_ascii_case("Components") => {
                        "Components: main".to_owned()
                    }
                    Some((key, _)) if key.eq_ignore_ascii_case("Types") => "Types: deb".to_owned(),
                    _ => line.to_owned(),
                });
                Self::Stanza(lines.collect::<Vec<_>>().join("\n"))
            }
            Self::Line(text) => match split_line(text) {
                Some((place, _, _)) => Self::Line(format!("{place} {suite} main")),
                None => self.clone(),
            },
        }
    }

    fn extension(&self) -> &'static str {
        match self {
            Self::Stanza(_) => "sources",
            Self::Line(_) => "list",
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Stanza(text) | Self::Line(text) => text,
        }
    }
}

/// The value of a field of a stanza, without continuation lines.
fn field<'a>(stanza: &'a str, name: &str) -> Option<&'a str> {
    let pairs = stanza.lines().filter_map(|line| line.split_once(':'));
    pairs.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
}

fn words<'a>(stanza: &'a str, name: &str) -> Vec<&'a str> {
    field(stanza, name).unwrap_or_default().split_whitespace().collect()
}

/// Type, options and place of a one-line entry; its suite; its components.
fn split_line(line: &str) -> Option<(&str, &str, &str)> {
    let after_options = line.find(']').map_or(3, |end| end + 1);
    let start = after_options + line[after_options..].find(|c: char| !c.is_whitespace())?;
    let end_of_place = start + line[start..].find(char::is_whitespace)?;
    let (suite, components) = line[end_of_place..].trim_start().split_once(char::is_whitespace)?;
    Some((&line[..end_of_place], suite, components.trim()))
}

/// The machine's sources for the release, its updates and security fixes.
pub fn release_sources() -> Result<Vec<Source>> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(entries) = fs::read_dir("/etc/apt/sources.list.d") {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.sort();
    let mut sources = Vec::new();
    for file in files {
        let extension = file.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if let ("list" | "sources", Ok(text)) = (extension, fs::read_to_string(&file)) {
            sources.extend(Source::parse(&text, extension == "list"));
        }
    }
    sources.retain(Source::is_release);
    if sources.is_empty() {
        bail!(
            "/etc/apt names no source for {RELEASE}/main; add one (see sources.list(5)), \
             then run `./x setup` again"
        );
    }
    Ok(sources)
}

/// Writes sources into files that apt and mmdebstrap read.
pub fn write_sources(sources: &[Source], folder: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for extension in ["sources", "list"] {
        let entries = sources.iter().filter(|source| source.extension() == extension);
        let separator = if extension == "sources" { "\n\n" } else { "\n" };
        let text: Vec<_> = entries.map(Source::text).collect();
        if !text.is_empty() {
            let path = folder.join(format!("{name}.{extension}"));
            fs::write(&path, text.join(separator) + "\n").context("write package sources")?;
            files.push(path);
        }
    }
    Ok(files)
}

/// The backports suite on the mirror that the release comes from.
pub fn backports() -> Result<Source> {
    suite(&format!("{RELEASE}-backports"))
}

/// Another suite on the mirror that the release comes from.
pub fn suite(name: &str) -> Result<Source> {
    let sources = release_sources()?;
    let main = sources.iter().find(|source| source.suites().contains(&RELEASE));
    let main = main.with_context(|| format!("/etc/apt names no source for {RELEASE} itself"))?;
    Ok(main.with_suite(name))
}

/// The sources of another release, its updates and security fixes: those of the machine's release,
/// with its name in the place of [`RELEASE`].
pub fn sources_of(release: &str) -> Result<Vec<Source>> {
    let sources = release_sources()?;
    let renamed = |source: &Source| {
        let suites = source.suites().into_iter().map(|suite| suite.replacen(RELEASE, release, 1));
        suites.map(|suite| source.with_suite(&suite)).collect::<Vec<_>>()
    };
    Ok(sources.iter().flat_map(renamed).collect())
}

/// Downloads packages of another suite into a folder, without what they depend on. Returns their
/// files.
pub fn download(suite_name: &str, names: &[&str], folder: &Path) -> Result<Vec<PathBuf>> {
    let files = folder.join(suite_name);
    fs::create_dir_all(files.join("lists/partial"))?;
    fs::create_dir_all(files.join("cache/archives/partial"))?;
    let sources = write_sources(&[suite(suite_name)?], &files, "other")?;
    let apt = || {
        let mut apt = run::as_root("apt-get");
        apt.arg("-oDir::Etc::SourceParts=-").current_dir(&files);
        for source in &sources {
            apt.arg(format!("-oDir::Etc::SourceList={}", source.display()));
        }
        apt.arg(format!("-oDir::State::Lists={}", files.join("lists").display()));
        apt.arg(format!("-oDir::Cache={}", files.join("cache").display()));
        // Its user could not write here.
        apt.arg("-oAPT::Sandbox::User=root");
        apt
    };
    run::quietly(apt().arg("update"))?;
    run::quietly(apt().arg("download").args(names))?;
    let found = fs::read_dir(&files)?.flatten().map(|entry| entry.path());
    let mut found: Vec<_> = found.filter(|path| path.extension() == Some("deb".as_ref())).collect();
    found.sort();
    Ok(found)
}

/// The versions of a package that apt knows, newest first.
pub fn versions(package: &str) -> Result<Vec<String>> {
    let text = run::output(Command::new("apt-cache").args(["madison", package]))?;
    let column = |line: &str| line.split('|').nth(1).map(|version| version.trim().to_owned());
    Ok(text.lines().filter_map(column).collect())
}

/// The packages that a package depends on, without versions and alternatives.
pub fn depends(package: &str, version: &str) -> Result<Vec<String>> {
    let what = format!("{package}={version}");
    let text = run::output(Command::new("apt-cache").args(["show", &what]))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Depends:")).unwrap_or_default();
    let first_word = |part: &str| part.split_whitespace().next().map(str::to_owned);
    Ok(line.split(',').filter_map(first_word).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STANZAS: &str = "# a comment\nTypes: deb deb-src\nURIs: http://mirror.example/debian\n\
        Suites: bookworm bookworm-updates\nComponents: main contrib\nSigned-By: /k.gpg\n\n\
        Types: deb\nURIs: http://other.example/x\nSuites: bookworm\nComponents: stable\n";

    #[test]
    fn stanzas_of_the_release_are_told_from_others() {
        let sources = Source::parse(STANZAS, false);
        assert_eq!(sources.len(), 2);
        assert!(sources[0].is_release());
        assert!(!sources[1].is_release());
    }

    #[test]
    fn backports_come_from_the_same_place() {
        let text = "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm-backports\n\
            Components: main\nSigned-By: /k.gpg";
        let sources = Source::parse(STANZAS, false);
        assert_eq!(sources[0].with_suite("bookworm-backports"), Source::Stanza(text.to_owned()));
        let line = "deb [signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib";
        let expected =
            "deb [signed-by=/k.gpg] http://mirror.example/debian bookworm-backports main";
        let source = Source::parse(line, true).remove(0);
        assert!(source.is_release());
        assert_eq!(source.with_suite("bookworm-backports"), Source::Line(expected.to_owned()));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `realm.toml`: options of `crtos up` under the same names, with what the command line says before
//! what the file says.
//!
//! The options themselves are what a file may say: a value is read and refused as it would be on
//! the command line. So the file becomes words of the command line, and nobody else knows of it.

use std::{
    ffi::OsString,
    fmt::Display,
    fs,
    io::ErrorKind,
    ops::Range,
    path::{Path, PathBuf},
};

use clap::{
    Arg, ArgAction, Command,
    error::{ContextKind, ContextValue},
    parser::ValueSource,
};
use toml::de::{DeTable, DeValue};

use crate::code::Code;
use crate::failure::{Failure, Result, STATUS_USAGE};

/// Where `crtos up` looks for it.
pub const PATH: &str = "/etc/crtos/realm.toml";
/// The verb whose options it holds.
const VERB: &str = "up";
/// Its options that are about one call of the command.
const NOT_IN_FILES: [&str; 3] = ["config", "dry-run", "help"];

/// Returns the words of the command line and those of the file that they leave open. A command line
/// that is none stays as it is: the parser says why.
pub fn complete(command: Command, words: Vec<OsString>) -> Result<Vec<OsString>> {
    let lenient =
        command.mut_subcommand(VERB, |verb| verb.mut_args(|option| option.required(false)));
    let Ok(matches) = lenient.clone().try_get_matches_from(&words) else { return Ok(words) };
    let (Some((VERB, given)), Some(verb)) = (matches.subcommand(), lenient.find_subcommand(VERB))
    else {
        return Ok(words);
    };
    let is_given = |option: &Arg| {
        let id = option.get_id().as_str();
        given.try_contains_id(id).is_ok()
            && given.value_source(id) == Some(ValueSource::CommandLine)
    };
    let path = given.get_one::<PathBuf>("config").cloned();
    let file = path.clone().unwrap_or_else(|| PATH.into());
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound && path.is_none() => {
            let says_any = verb.get_arguments().any(is_given);
            return if says_any { Ok(words) } else { Err(nothing_said()) };
        }
        Err(error) => {
            return Err(Failure::io(format!("read {}", file.display()), &error));
        }
    };
    let mut options = read(verb, &file, &text)?;
    options.retain(|(option, _)| !is_given(option));
    // Behind the verb, which is the first word: the command has no options of its own with values.
    let (front, back) = words.split_at(words.len().min(2));
    let from_file = options.into_iter().map(|(_, word)| OsString::from(word));
    Ok(front.iter().cloned().chain(from_file).chain(back.iter().cloned()).collect())
}

/// Neither a command line nor a file says anything.
fn nothing_said() -> Failure {
    Failure::new(
        Code::NoConfiguration,
        "start the real-time realm",
        format!("no options, and there is no {PATH}"),
    )
    .remedy(format!(
        "`crtos plan >{PATH}` proposes one for this machine; or name CPUs and memory: `crtos up \
             --cpus 3 --memory 512M`"
    ))
    .status(STATUS_USAGE)
}

/// Reads a file. Returns options of `verb`, each with a word for the command line.
fn read<'a>(verb: &'a Command, path: &Path, text: &str) -> Result<Vec<(&'a Arg, String)>> {
    let asked = format!("read {}", path.display());
    let refuse = |span: Option<Range<usize>>, reason: &dyn Display| {
        let line = text.get(..span.map_or(0, |span| span.start)).unwrap_or_default();
        let line = line.matches('\n').count() + 1;
        Failure::new(Code::BadConfiguration, asked.clone(), format!("line {line}: {reason}"))
    };
    let table = DeTable::parse(text).map_err(|error| {
        refuse(error.span(), &error.message().replace('\n', ", "))
            .remedy("write NAME = \"VALUE\", NAME = true or NAME = [\"VALUE\", \"VALUE\"]")
    })?;
    let known = |option: &&Arg| option.get_long().is_some_and(|name| !NOT_IN_FILES.contains(&name));
    let mut words = Vec::new();
    for (name, value) in table.get_ref() {
        let mut options = verb.get_arguments().filter(known);
        let named = |option: &&Arg| option.get_long() == Some(name.get_ref());
        let Some(option) = options.find(named) else {
            let all: Vec<_> =
                verb.get_arguments().filter(known).filter_map(Arg::get_long).collect();
            return Err(refuse(
                Some(name.span()),
                &format!("`{name}` is unknown", name = name.get_ref()),
            )
            .remedy(format!("it may say {}", all.join(", "))));
        };
        let refuse = |span, reason: &dyn Display| {
            let help = option.get_help().map(|help| format!("{}: {help}", name.get_ref()));
            let failure = refuse(Some(span), &format!("`{}`: {reason}", name.get_ref()));
            failure.remedy(help.unwrap_or_default())
        };
        let values = match (value.get_ref(), option.get_action()) {
            (DeValue::Array(values), ArgAction::Append) => values.iter().collect(),
            (DeValue::Array(_), _) => {
                return Err(refuse(value.span(), &"it takes one value, not a list"));
            }
            _ => vec![value],
        };
        for value in values {
            let word = word(option, name.get_ref(), value.get_ref())
                .and_then(|word| check(option, word))
                .map_err(|reason| refuse(value.span(), &reason))?;
            words.extend(word.map(|word| (option, word)));
        }
    }
    // As they stand in the file, so that a mistake that several make together is told in order.
    Ok(words)
}

/// Makes a word for the command line; none where an option is left out.
fn word(
    option: &Arg,
    name: &str,
    value: &DeValue<'_>,
) -> std::result::Result<Option<String>, String> {
    let is_flag = matches!(option.get_action(), ArgAction::SetTrue);
    match value {
        DeValue::Boolean(set) if is_flag => Ok(set.then(|| format!("--{name}"))),
        _ if is_flag => Err("it is true or false, without quotes".into()),
        DeValue::String(text) => Ok(Some(format!("--{name}={text}"))),
        DeValue::Integer(number) if number.radix() == 10 => {
            Ok(Some(format!("--{name}={}", number.as_str())))
        }
        _ => Err("its value stands in quotes".into()),
    }
}

/// Returns the word if the option takes it, or else why not.
fn check(option: &Arg, word: Option<String>) -> std::result::Result<Option<String>, String> {
    let Some(text) = &word else { return Ok(None) };
    let alone = Command::new(VERB).arg(option.clone());
    let Err(error) = alone.try_get_matches_from([VERB, text]) else { return Ok(word) };
    if let Some(reason) = std::error::Error::source(&error) {
        return Err(reason.to_string());
    }
    match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(values)) => Err(format!("it is one of {}", values.join(", "))),
        _ => Err("no such value".into()),
    }
}

#[cfg(test)]
pub mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::{Cli, Verb, cpu_choice::CpuChoice, size::Size};

    /// Writes a file and returns the words that `crtos up WORDS` becomes with it.
    fn completed(text: &str, words: &[&str]) -> Result<Vec<String>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let config = format!("--config={}", file.path().display());
        let all = ["crtos", "up", &config].iter().chain(words).map(OsString::from).collect();
        let words = complete(Cli::command(), all)?;
        let words = words.into_iter().map(|word| word.into_string().unwrap());
        Ok(words.filter(|word| *word != config).skip(2).collect())
    }

    fn refused(text: &str) -> String {
        let error = completed(text, &[]).unwrap_err().to_string();
        // The file has another name each time.
        error.split_once(": ").unwrap().1.to_owned()
    }

    /// Has `crtos up` read a file that says CPUs and memory. Returns these.
    pub fn up_reads(text: &str) -> (CpuChoice, Size) {
        let words = completed(text, &[]).unwrap();
        let words = ["crtos".into(), "up".into()].into_iter().chain(words);
        match Cli::try_parse_from(words).unwrap().verb {
            Verb::Up(up) => up.wanted(),
            _ => unreachable!("the verb is up"),
        }
    }

    #[test]
    fn each_option_has_the_same_name() {
        let text = "cpus = 3\nmemory = '512M'\nlocked = true\nno-reset = false\n\
            device = ['ttyS1', \"can0\"]\nlinux-dma = 'checked'\nport = ['0xe9']\n";
        let mut words = completed(text, &[]).unwrap();
        words.sort();
        let expected = [
            "--cpus=3",
            "--device=can0",
            "--device=ttyS1",
            "--linux-dma=checked",
            "--locked",
            "--memory=512M",
            "--port=0xe9",
        ];
        assert_eq!(words, expected);
        let (cpus, memory) = up_reads(text);
        assert_eq!((cpus, memory), ("3".parse().unwrap(), Size::mib(512)));
    }

    #[test]
    fn the_command_line_comes_first() {
        let text = "cpus = '3'\nmemory = '512M'\ndevice = ['a', 'b']\n";
        let words = completed(text, &["--memory", "1G", "--device=c"]).unwrap();
        assert_eq!(words, ["--cpus=3", "--memory", "1G", "--device=c"]);
    }

    #[test]
    fn mistakes_are_told_with_line_reason_and_remedy() {
        for (text, words) in [
            (
                "cpus = '3'\ncpu = '3'\n",
                "line 2: `cpu` is unknown\n  remedy: it may say cpus, memory",
            ),
            ("\n\nmemory = 'lots'", "line 3: `memory`: `lots` is no amount of memory"),
            ("memory = 'lots'", "remedy: memory: Memory that Linux gives up, such as 512M"),
            ("cpus = 'node:x'", "line 1: `cpus`: `x` is no number"),
            ("cpus = ['3']", "`cpus`: it takes one value, not a list"),
            ("device = [\n'a',\n1.5]", "line 3: `device`: its value stands in quotes"),
            ("locked = 'yes'", "`locked`: it is true or false"),
            ("linux-dma = 'no'", "`linux-dma`: it is one of confined, checked"),
            ("dry-run = true", "`dry-run` is unknown"),
            ("config = 'x'", "`config` is unknown"),
            ("[realm]\ncpus = '3'", "line 1: `realm` is unknown"),
            ("cpus = '3'\ncpus = '2'", "line 2: duplicate key"),
            ("cpus = 3-4", "line 1: "),
            ("a\n= 1", "line 1: "),
        ] {
            let said = refused(text);
            assert!(said.contains(words), "{text}: {said}");
            assert!(said.contains("\n  remedy: "), "{text}: {said}");
        }
    }

    #[test]
    fn without_a_file_the_command_line_is_all() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let all = words(&["crtos", "ps"]);
        assert_eq!(complete(Cli::command(), all.clone()).unwrap(), all);
        let missing = complete(Cli::command(), words(&["crtos", "up", "--config=/absent"]));
        assert!(missing.unwrap_err().to_string().contains("No such file"));
    }

    mod properties {
        use super::*;
        use proptest::prelude::*;

        proptest! {
            #![proptest_config(ProptestConfig::with_cases(256))]
            /// Whatever a file says, it is refused by a line that it has, or is known options.
            #[test]
            fn any_file_is_read_or_refused(text in "([a-z-]{0,8} ?= ?['\\[]?[a-z0-9.,:]{0,6}[\\]']?\n?|\\PC{0,12}){0,6}") {
                if let Err(failure) = completed(&text, &[]) {
                    let said = failure.to_string();
                    let line = said.split_once(": line ").unwrap().1.split_once(':').unwrap().0;
                    let lines = text.matches('\n').count() + 1;
                    prop_assert!((1..=lines).contains(&line.parse::<usize>().unwrap()));
                }
            }
        }
    }
}

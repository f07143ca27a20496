// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the words after `--` to a script.

use anyhow::{Context, Result};

/// One word is a script as it stands; several are a program and its arguments,
/// each of which reaches the program unchanged.
pub fn script(words: &[String]) -> Result<String> {
    match words {
        [script] => Ok(script.clone()),
        words => shlex::try_join(words.iter().map(String::as_str))
            .context("an argument holds a zero byte"),
    }
}

#[cfg(test)]
mod tests {
    use super::script;

    fn of(words: &[&str]) -> String {
        script(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn one_word_is_a_script() {
        assert_eq!(of(&["echo a | wc -c"]), "echo a | wc -c");
    }

    #[test]
    fn several_words_stay_apart() {
        assert_eq!(shlex::split(&of(&["sh", "-c", "exit 7"])).unwrap(), ["sh", "-c", "exit 7"]);
        assert_eq!(shlex::split(&of(&["echo", "$HOME", ""])).unwrap(), ["echo", "$HOME", ""]);
    }
}

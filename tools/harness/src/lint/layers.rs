// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the modules of a crate depend on each other in one direction.
//!
//! The root of such a crate declares its modules in layers, the lowest first, with an empty line
//! between two layers. A module uses those of the layers before its own, and itself, but none of
//! its own layer and none of a later one. Where the modules of a layer do refer to each other, the
//! root says so in the line before them: [`CYCLE`].

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Roots of the crates whose modules are in layers.
const ROOTS: [&str; 3] =
    ["hypervisor/machine/src/lib.rs", "hypervisor/src/main.rs", "kernel/linux/src/lib.rs"];

/// What stands before the modules of a layer that use each other.
const CYCLE: &str = "// A cycle:";

/// Checks all crates with layers of the `project`.
pub fn check(project: &Path) -> Result<()> {
    let mut complaints = Vec::new();
    for root in ROOTS {
        complaints.extend(check_crate(project, &project.join(root))?);
    }
    if complaints.is_empty() {
        return Ok(());
    }
    bail!("{}", complaints.join("\n"))
}

/// Complaints about the crate with this root.
fn check_crate(project: &Path, root: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(root).with_context(|| format!("read {}", root.display()))?;
    let layers = layers(&text);
    let folder = root.parent().context("a file in no folder")?;
    let mut complaints = Vec::new();
    for (module, layer) in &layers {
        for file in files_of(folder, module)? {
            let text = fs::read_to_string(&file)?;
            for used in used(&text) {
                let against = used != *module
                    && layers.get(&used).is_some_and(|at| match at.number == layer.number {
                        true => !layer.is_cycle,
                        false => at.number > layer.number,
                    });
                if against {
                    let file = file.strip_prefix(project).unwrap_or(&file).display();
                    complaints.push(format!(
                        "{file}: `{module}` uses `{used}`, which is not in a layer below it"
                    ));
                }
            }
        }
    }
    complaints.sort();
    complaints.dedup();
    Ok(complaints)
}

/// The layer of a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Layer {
    /// The lowest one has the lowest number.
    number: usize,
    /// Its modules use each other.
    is_cycle: bool,
}

/// The modules that a root declares, with their layers.
fn layers(root: &str) -> HashMap<String, Layer> {
    let mut layers = HashMap::new();
    let mut layer = Layer::default();
    for line in root.lines() {
        if line.trim().is_empty() {
            layer = Layer { number: layer.number + 1, is_cycle: false };
        }
        layer.is_cycle |= line.starts_with(CYCLE);
        let item = line.strip_prefix("pub ").or(line.strip_prefix("pub(crate) ")).unwrap_or(line);
        if let Some(name) = item.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) {
            layers.insert(name.to_owned(), layer);
        }
    }
    layers
}

/// The files of a module of the crate in `folder`.
fn files_of(folder: &Path, module: &str) -> Result<Vec<PathBuf>> {
    let single = folder.join(format!("{module}.rs"));
    let mut files: Vec<_> = single.exists().then_some(single).into_iter().collect();
    let mut folders: Vec<_> =
        Some(folder.join(module)).filter(|folder| folder.is_dir()).into_iter().collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    if files.is_empty() {
        bail!("the module `{module}` has no file in {}", folder.display());
    }
    Ok(files)
}

/// What a file names directly behind `crate::`, in paths or in `use` with braces. Comments do not
/// count, nor does `$crate`.
fn used(text: &str) -> Vec<String> {
    let code: String = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n");
    let mut used = Vec::new();
    for (position, _) in code.match_indices("crate::") {
        let before = code[..position].chars().next_back();
        if before.is_some_and(|c| c == '$' || c == '_' || c.is_alphanumeric()) {
            continue;
        }
        let rest = &code[position + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(list) => used.extend(heads(list)),
            None => used.extend(head(rest)),
        }
    }
    used
}

/// The first name of a path.
fn head(path: &str) -> Option<String> {
    let name: String =
        path.trim_start().chars().take_while(|c| *c == '_' || c.is_alphanumeric()).collect();
    (!name.is_empty()).then_some(name)
}

/// The first names of the paths in a list that ends with the brace that belongs to its start.
fn heads(list: &str) -> Vec<String> {
    let mut names = Vec::from_iter(head(list));
    let mut depth = 0;
    for (position, character) in list.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.extend(head(&list[position + 1..])),
            _ => (),
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::{Path, check, layers, used};

    #[test]
    fn modules_use_only_those_of_lower_layers() {
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        if let Err(complaints) = check(&project) {
            panic!("{complaints:#}");
        }
    }

    #[test]
    fn an_empty_line_ends_a_layer() {
        let layers = layers("//! Text.\n#![no_std]\n\npub mod a;\nmod b;\n\npub(crate) mod c;\n");
        assert_eq!(layers["a"], layers["b"]);
        assert!(layers["b"].number < layers["c"].number);
    }

    #[test]
    fn a_cycle_is_of_one_layer() {
        let layers = layers("mod a;\n\n// A cycle: why.\nmod b;\nmod c;\n\nmod d;\n");
        assert_eq!(layers["b"], layers["c"]);
        let cycles = ["a", "b", "c", "d"].map(|name| layers[name].is_cycle);
        assert_eq!(cycles, [false, true, true, false]);
    }

    #[test]
    fn all_forms_of_use_are_found() {
        let text = "use crate::one::{self, Two};\nuse crate::{\n    three::{four, five},\n    six,\n};\n\
            // crate::comment\nfn f() { crate::seven::eight($crate::nine, other_crate::ten) }\n";
        assert_eq!(used(text), ["one", "three", "six", "seven"]);
    }
}

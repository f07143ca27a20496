// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the programs of a user may have in the realm, as `crtos up --limit` says it:
//! `alice:cpus=2:memory=64M:priority=40`.

use std::{fmt, str::FromStr};

use crate::{
    code::Code,
    cpulist::CpuList,
    failure::{Failure, Result},
    machine::Machine,
    size::{self, Size},
};

/// How it is written.
const SYNTAX: &str = "write USER:cpus=LIST:memory=SIZE:priority=0..99 with one of these at least";
/// The name that stands for each user who has no limit of their own, but root.
const OTHERS: &str = "*";
/// The highest POSIX priority.
const MOST_PRIORITY: u32 = 99;

/// What the programs of a user may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserLimit {
    user: String,
    /// The user's number, or none for all others; `None` if there is no such user, or nobody has
    /// looked ([`UserLimit::look_up`]).
    id: Option<Option<u32>>,
    cpus: Option<CpuList>,
    memory: Option<Size>,
    priority: Option<u32>,
}

impl FromStr for UserLimit {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let mut parts = text.split(':');
        let user = parts.next().filter(|user| !user.is_empty()).ok_or(SYNTAX)?.to_owned();
        let mut limit = Self { user, id: None, cpus: None, memory: None, priority: None };
        for part in parts {
            let (name, value) = part.split_once('=').ok_or(SYNTAX)?;
            let is_new = match name {
                "cpus" => limit.cpus.replace(value.parse()?).is_none(),
                "memory" => limit.memory.replace(size::with_unit(value)?).is_none(),
                "priority" => {
                    let number = value.parse().ok().filter(|&number| number <= MOST_PRIORITY);
                    let number =
                        number.ok_or_else(|| format!("`{value}` is no priority: 0..99"))?;
                    limit.priority.replace(number).is_none()
                }
                _ => return Err(format!("`{name}` is unknown; {SYNTAX}")),
            };
            if !is_new {
                return Err(format!("`{name}` is said twice"));
            }
        }
        match (&limit.cpus, &limit.memory, &limit.priority) {
            (None, None, None) => Err(SYNTAX.into()),
            _ => Ok(limit),
        }
    }
}

impl fmt::Display for UserLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = &self.user;
        write!(f, "{}", if user == OTHERS { "users who are not named" } else { user })?;
        let cpus = self.cpus.as_ref().map(CpuList::named);
        let memory = self.memory.map(|size| format!("{size} of memory"));
        let priority = self.priority.map(|most| format!("priority {most}"));
        let parts: Vec<_> = [cpus, memory, priority].into_iter().flatten().collect();
        write!(f, " to {}", parts.join(", "))
    }
}

impl UserLimit {
    /// Looks up who the user is. What is checked is what the kernel is told, though the users of
    /// the machine change meanwhile.
    pub fn look_up(&mut self, machine: &Machine) {
        self.id = match self.user.as_str() {
            OTHERS => Some(None),
            user => user.parse().ok().or_else(|| machine.user(user)).map(Some),
        };
    }

    /// Refuses limits that mean nothing for a realm that has `cpus` and so much `memory`.
    pub fn check(limits: &[Self], asked: &str, cpus: &CpuList, memory: Size) -> Result<()> {
        let refuse = |reason: String, remedy: String| {
            Err(Failure::new(Code::UserLimit, asked, reason).remedy(remedy))
        };
        let mut ids = Vec::new();
        for limit in limits {
            let user = &limit.user;
            let Some(id) = limit.id else {
                return refuse(
                    format!("--limit: there is no user {user}"),
                    "name one of /etc/passwd, or write the user's number".into(),
                );
            };
            if ids.contains(&id) {
                return refuse(format!("--limit names {user} twice"), "say all at once".into());
            }
            ids.push(id);
            let named = limit.cpus.iter().flat_map(CpuList::iter);
            if let Some(other) = named.into_iter().find(|cpu| !cpus.contains(*cpu)) {
                return refuse(
                    format!("--limit gives {user} CPU {other}, which the realm does not have"),
                    format!("name some of {}", cpus.named()),
                );
            }
            if let Some(more) = limit.memory.filter(|&most| most > memory) {
                return refuse(
                    format!("--limit gives {user} {more} of memory, and the realm has {memory}"),
                    "give less; who is to have all needs no limit of memory".into(),
                );
            }
        }
        Ok(())
    }

    /// Returns the word of the kernel's command line, for a realm that has `cpus`; `None` if there
    /// is no such user.
    pub fn word(&self, cpus: &CpuList) -> Option<String> {
        let mask = self.cpus.as_ref().map(|mine| {
            let places = cpus.iter().enumerate().filter(|(_, cpu)| mine.contains(*cpu));
            places.fold(0, |mask, (place, _)| mask | 1_u64 << place)
        });
        let field = |value: Option<u64>| value.map_or("-".into(), |value| format!("{value:x}"));
        let id = self.id?.map(u64::from);
        let (memory, priority) = (self.memory.map(|size| size.0), self.priority.map(u64::from));
        let fields = [id, mask, memory, priority].map(field);
        Some(format!("user={}", fields.join(",")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(text: &str) -> UserLimit {
        let mut limit: UserLimit = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        limit.look_up(&Machine::here());
        limit
    }

    #[test]
    fn reads_limits() {
        let limit = limit("alice:cpus=2-3:memory=64M:priority=40");
        assert_eq!(limit.user, "alice");
        assert_eq!(limit.cpus, Some("2-3".parse().unwrap()));
        assert_eq!((limit.memory, limit.priority), (Some(Size::mib(64)), Some(40)));
        for text in [
            "",
            "alice",
            ":memory=1M",
            "alice:memory=64",
            "alice:cpus=",
            "alice:priority=100",
            "alice:priority=-1",
            "alice:nice=3",
            "alice:memory",
            "alice:memory=1M:memory=2M",
        ] {
            assert!(text.parse::<UserLimit>().is_err(), "{text}");
        }
    }

    #[test]
    fn words_have_the_places_of_cpus() {
        let cpus = "1,4-6".parse().unwrap();
        let word = |text| limit(text).word(&cpus).unwrap();
        assert_eq!(word("1000:cpus=4,6:memory=64M:priority=40"), "user=3e8,a,4000000,28");
        assert_eq!(word("*:priority=0"), "user=-,-,-,0");
        assert_eq!(limit("no such user:priority=0").word(&cpus), None);
    }

    #[test]
    fn limits_that_mean_nothing_are_refused() {
        let cpus = "2-3".parse().unwrap();
        let check = |texts: &[&str]| {
            let limits: Vec<_> = texts.iter().map(|text| limit(text)).collect();
            UserLimit::check(&limits, "try", &cpus, Size::mib(256)).is_ok()
        };
        assert!(check(&["1000:cpus=3", "*:memory=1M"]));
        assert!(!check(&["1000:cpus=1"]));
        assert!(check(&["1000:memory=256M"]));
        assert!(!check(&["1000:memory=257M"]));
        assert!(!check(&["1000:priority=1", "1000:memory=1M"]));
        assert!(!check(&["no such user:priority=1"]));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the sections of a link ([`crtos_abi::link`]) are, and which of them a peer may write. The
//! module has the same rules in C (`linux/module/link.c`).
//!
//! Linux can write the header at any time: [`Layout::read`] takes a copy, and checks that.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

use core::ops::Range;

use crtos_abi::PAGE_SIZE;
use crtos_abi::link::{LINK_MAGIC, LINK_SIZE_MAX, LinkHeader, MAX_LINK_PEERS};

/// The sizes of a link, which are sound: it has all its sections within [`LINK_SIZE_MAX`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Layout {
    peers: usize,
    common: u64,
    output: u64,
}

/// A part of a link. Numbers of peers count from 0.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Section {
    /// The header, which no peer writes.
    Header,
    /// The page of a peer in the state table.
    Own(usize),
    /// What all peers write.
    Common,
    /// What that peer alone writes.
    Output(usize),
}

impl Layout {
    /// What a copy of a header says; `None` if it is none, or its sizes are not sound.
    pub fn read(header: &LinkHeader) -> Option<Self> {
        let LinkHeader { magic, peers, common, output, .. } = *header;
        (magic == LINK_MAGIC).then(|| Self::new(peers as usize, common, output)).flatten()
    }

    /// A link of so many peers with Linux, and so many bytes in common and in the output section of
    /// each. `None` unless there are 2 to [`MAX_LINK_PEERS`] peers, the bytes are pages, and all is
    /// at most [`LINK_SIZE_MAX`].
    pub fn new(peers: usize, common: u64, output: u64) -> Option<Self> {
        let sound = (2..=MAX_LINK_PEERS).contains(&peers)
            && common <= LINK_SIZE_MAX
            && output <= LINK_SIZE_MAX
            && (common | output).is_multiple_of(PAGE_SIZE);
        // After the checks above, no sum of these overflows.
        let layout = Self { peers, common, output };
        (sound && layout.size() <= LINK_SIZE_MAX).then_some(layout)
    }

    /// How many peers there may be, Linux among them.
    pub fn peers(&self) -> usize {
        self.peers
    }

    /// Bytes of the link.
    pub fn size(&self) -> u64 {
        self.shared() + self.common + self.peers as u64 * self.output
    }

    /// Where the common section begins.
    fn shared(&self) -> u64 {
        (1 + self.peers as u64) * PAGE_SIZE
    }

    /// Which bytes of the link a section has, whole pages and maybe none; `None` if there is no
    /// such peer.
    pub fn section(&self, section: Section) -> Option<Range<u64>> {
        let (start, size) = match section {
            Section::Header => (0, PAGE_SIZE),
            Section::Common => (self.shared(), self.common),
            Section::Own(peer) | Section::Output(peer) if peer >= self.peers => return None,
            Section::Own(peer) => ((1 + peer as u64) * PAGE_SIZE, PAGE_SIZE),
            Section::Output(peer) => {
                (self.shared() + self.common + peer as u64 * self.output, self.output)
            }
        };
        Some(start..start + size)
    }

    /// Whether a peer may write all of these bytes: they are within one section that it writes.
    pub fn may_write(&self, peer: usize, bytes: &Range<u64>) -> bool {
        [Section::Own(peer), Section::Common, Section::Output(peer)].into_iter().any(|section| {
            let section = self.section(section);
            section.is_some_and(|it| bytes.start >= it.start && bytes.end <= it.end)
        })
    }

    /// Which bytes `size` ones from `start` on are; `None` if there are none, or some of them are
    /// not in the link. Any numbers will do.
    pub fn bytes(&self, start: u64, size: u64) -> Option<Range<u64>> {
        let end = start.checked_add(size)?;
        (size > 0 && end <= self.size()).then_some(start..end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sections(layout: &Layout) -> Vec<Section> {
        let peers = 0..layout.peers();
        let own = peers.clone().map(Section::Own);
        let output = peers.map(Section::Output);
        [Section::Header].into_iter().chain(own).chain([Section::Common]).chain(output).collect()
    }

    fn layouts() -> impl Strategy<Value = Layout> {
        (2..=MAX_LINK_PEERS, 0..400u64, 0..400u64).prop_map(|(peers, common, output)| {
            Layout::new(peers, common * PAGE_SIZE, output * PAGE_SIZE).expect("sound")
        })
    }

    /// Sizes as a hostile Linux gives them: any, and those about the limits.
    fn sizes() -> impl Strategy<Value = u64> {
        let about = (0..=2 * LINK_SIZE_MAX / PAGE_SIZE).prop_map(|pages| pages * PAGE_SIZE);
        prop_oneof![any::<u64>(), any::<u64>().prop_map(|size| size & !(PAGE_SIZE - 1)), about]
    }

    fn header(magic: u64, peers: u32, common: u64, output: u64) -> LinkHeader {
        let (name, cells) = ([0; 32], [0; 8]);
        LinkHeader { magic, abi_version: 0, peers, common, output, device: 0, name, cells }
    }

    proptest! {
        #[test]
        fn sections_follow_each_other_and_fill_the_link(layout in layouts()) {
            let mut end = 0;
            for section in sections(&layout) {
                let bytes = layout.section(section).expect("it has that");
                prop_assert_eq!(bytes.start, end);
                prop_assert!(bytes.end.is_multiple_of(PAGE_SIZE) && bytes.end >= bytes.start);
                end = bytes.end;
            }
            prop_assert_eq!(end, layout.size());
            prop_assert!(end <= LINK_SIZE_MAX);
        }

        #[test]
        fn a_page_has_all_writers_or_one_or_none(layout in layouts(), page in 0..4096u64) {
            let Some(bytes) = layout.bytes(page * PAGE_SIZE, PAGE_SIZE) else { return Ok(()) };
            let writes = |&peer: &usize| layout.may_write(peer, &bytes);
            let writers = (0..layout.peers()).filter(writes).count();
            let common = layout.section(Section::Common).expect("always there");
            match () {
                () if page == 0 => prop_assert_eq!(writers, 0),
                () if common.contains(&bytes.start) => prop_assert_eq!(writers, layout.peers()),
                () => prop_assert_eq!(writers, 1),
            }
        }

        #[test]
        fn bytes_that_one_may_not_write_are_not_within_any(
            layout in layouts(), peer in 0..10usize,
            start in 0..LINK_SIZE_MAX, size in 1..0x10000u64,
        ) {
            let Some(bytes) = layout.bytes(start, size) else { return Ok(()) };
            let all = [start, start + size - 1].map(|byte| byte & !(PAGE_SIZE - 1));
            let each = all.map(|page| layout.may_write(peer, &(page..page + PAGE_SIZE)));
            if layout.may_write(peer, &bytes) {
                prop_assert_eq!(each, [true; 2]);
            }
        }

        #[test]
        fn a_hostile_header_is_refused_or_sound(
            peers in prop_oneof![0..10u32, any::<u32>()], common in sizes(), output in sizes(),
        ) {
            let read = Layout::read(&header(LINK_MAGIC, peers, common, output));
            let size = (1 + u128::from(peers)) * u128::from(PAGE_SIZE)
                + u128::from(common)
                + u128::from(peers) * u128::from(output);
            let sound = (2..=8).contains(&peers)
                && common.is_multiple_of(PAGE_SIZE)
                && output.is_multiple_of(PAGE_SIZE)
                && size <= LINK_SIZE_MAX.into();
            prop_assert_eq!(read.is_some(), sound);
            if let Some(read) = read {
                prop_assert_eq!(u128::from(read.size()), size);
            }
        }

        #[test]
        fn any_place_is_within_or_refused(layout in layouts(), start: u64, size: u64) {
            if let Some(bytes) = layout.bytes(start, size) {
                prop_assert!(bytes.start < bytes.end && bytes.end <= layout.size());
            }
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        assert!(Layout::read(&header(LINK_MAGIC, 2, 4096, 0)).is_some());
        assert_eq!(Layout::read(&header(LINK_MAGIC ^ 1, 2, 4096, 0)), None);
    }

    #[test]
    fn the_largest_link_has_all_of_its_room() {
        let rest = LINK_SIZE_MAX - 3 * PAGE_SIZE;
        assert_eq!(Layout::new(2, rest, 0).map(|it| it.size()), Some(LINK_SIZE_MAX));
        assert_eq!(Layout::new(2, rest, PAGE_SIZE), None);
        let layout = Layout::new(2, 0, 0).expect("sound");
        assert_eq!(layout.bytes(0, layout.size()), Some(0..layout.size()));
        assert_eq!(layout.bytes(0, layout.size() + 1), None);
        assert_eq!(layout.bytes(0, 0), None);
        assert_eq!(layout.section(Section::Output(2)), None);
    }
}

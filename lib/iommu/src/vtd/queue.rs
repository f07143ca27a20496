// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors of the invalidation queue (VT-d 6.5.2).

use crtos_partition::address::PhysAddr;

use super::registers::{Capability, ExtendedCapability};
use crate::effect::{Completion, Devices, Effect, Invalid, Store, piece};
use crate::{DomainId, Requester, bit, field};

/// Which descriptors a unit takes.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// What it can do.
    pub capability: Capability,
    /// What else it can do.
    pub extended: ExtendedCapability,
    /// Descriptors have 256 bits, not 128.
    pub wide: bool,
    /// Scalable mode.
    pub scalable: bool,
}

/// Bytes of a descriptor.
pub fn descriptor_size(wide: bool) -> u64 {
    if wide { 32 } else { 16 }
}

impl Mode {
    /// Bytes of a descriptor.
    pub fn size(&self) -> u64 {
        descriptor_size(self.wide)
    }

    /// What a descriptor means; the second half of one of 128 bits is 0.
    pub fn decode(&self, raw: [u64; 4]) -> Result<Effect, Invalid> {
        let [low, high, ..] = raw;
        // 128 bits are none in scalable mode (VT-d 6.5.2.11, table 26).
        if self.scalable && !self.wide {
            return Err(Invalid::Kind);
        }
        let kind = field(low, 0, 4) | field(low, 9, 3) << 4;
        let (effect, used) = match kind {
            1 => self.context(low)?,
            2 => self.mappings(low, high)?,
            // VT-d 6.5.2.5.
            3 if self.extended.has_device_tlbs() => {
                let device = Requester(field(low, 32, 16) as u16);
                let used = [0xffff_001f_0000 | self.physical_function(), !0xffe];
                (Effect::ToDevice(device), used)
            }
            4 => self.interrupts(low)?,
            5 => self.completion(low, high),
            6 if self.scalable => Self::process_mappings(low, high)?,
            7 if self.scalable => Self::processes(low)?,
            // VT-d 6.5.2.6.
            8 if self.scalable && self.extended.has_device_tlbs() => {
                let device = Requester(field(low, 16, 16) as u16);
                let used = [0xf_ffff_ffff_01f0 | self.physical_function(), !0x7fe];
                (Effect::ToDevice(device), used)
            }
            // VT-d 7.6.1.
            9 if self.scalable => {
                let device = Requester(field(low, 16, 16) as u16);
                (Effect::ToDevice(device), [!0, !0])
            }
            _ => return Err(Invalid::Kind),
        };
        let unused = low & !(used[0] | 0xe0f) | high & !used[1];
        // A response has private data in its second half (VT-d 7.6.1).
        let rest = if kind == 9 { 0 } else { raw[2] | raw[3] };
        if unused | rest != 0 { Err(Invalid::Reserved) } else { Ok(effect) }
    }

    /// VT-d 6.5.2.1.
    fn context(&self, low: u64) -> Result<(Effect, [u64; 2]), Invalid> {
        let domain = DomainId(field(low, 16, 16) as u16);
        let devices = match field(low, 4, 2) {
            1 => Devices::All,
            // In scalable mode the cache does not know domains.
            2 if self.scalable => Devices::All,
            2 => Devices::Of(domain),
            3 => {
                // So many of the three lowest bits do not count, from above.
                let mask = [0, 4, 6, 7][field(low, 48, 2) as usize];
                Devices::Like(Requester(field(low, 32, 16) as u16), mask)
            }
            _ => return Err(Invalid::Reserved),
        };
        Ok((Effect::Devices(devices), [0x3_ffff_ffff_0030, 0]))
    }

    /// VT-d 6.5.2.3.
    fn mappings(&self, low: u64, high: u64) -> Result<(Effect, [u64; 2]), Invalid> {
        let domain = DomainId(field(low, 16, 16) as u16);
        let effect = match field(low, 4, 2) {
            1 => Effect::Mappings(None, None),
            2 => Effect::Mappings(Some(domain), None),
            3 if self.capability.selects_pages() => {
                let order = field(high, 0, 6) as u32;
                if order > self.capability.max_page_order() {
                    return Err(Invalid::Reserved);
                }
                Effect::Mappings(Some(domain), piece(high, order + 12))
            }
            _ => return Err(Invalid::Reserved),
        };
        Ok((effect, [0xffff_00f0, !0xf80]))
    }

    /// VT-d 6.5.2.4.
    fn process_mappings(low: u64, high: u64) -> Result<(Effect, [u64; 2]), Invalid> {
        let domain = DomainId(field(low, 16, 16) as u16);
        let range = match field(low, 4, 2) {
            2 => None,
            3 => piece(high, field(high, 0, 6) as u32 + 12),
            _ => return Err(Invalid::Reserved),
        };
        let process = field(low, 32, 20) as u32;
        Ok((Effect::ProcessMappings(domain, process, range), [0xf_ffff_ffff_0030, !0xf80]))
    }

    /// VT-d 6.5.2.2.
    fn processes(low: u64) -> Result<(Effect, [u64; 2]), Invalid> {
        let domain = Some(DomainId(field(low, 16, 16) as u16));
        let effect = match field(low, 4, 2) {
            0 => Effect::Processes(domain, None),
            1 => Effect::Processes(domain, Some(field(low, 32, 20) as u32)),
            3 => Effect::Processes(None, None),
            _ => return Err(Invalid::Reserved),
        };
        Ok((effect, [0xf_ffff_ffff_0030, 0]))
    }

    /// Bits of the id of the physical function in descriptors for devices.
    fn physical_function(&self) -> u64 {
        if self.extended.throttles_devices() { 0xfff0_0000_0000_f000 } else { 0 }
    }

    /// VT-d 6.5.2.8.
    fn interrupts(&self, low: u64) -> Result<(Effect, [u64; 2]), Invalid> {
        let used = [0xffff_f800_0010, 0];
        if !bit(low, 4) {
            return Ok((Effect::Interrupts(0..=u16::MAX), used));
        }
        let order = field(low, 27, 5) as u32;
        if order > self.extended.max_interrupt_order() {
            return Err(Invalid::Reserved);
        }
        // The order is below 16, as its field in the register is.
        let (index, mask) = (field(low, 32, 16) as u16, (1u16 << order) - 1);
        Ok((Effect::Interrupts(index & !mask..=index | mask), used))
    }

    /// VT-d 6.5.2.9.
    fn completion(&self, low: u64, high: u64) -> (Effect, [u64; 2]) {
        let drains = if self.extended.drains_page_requests() { 1 << 7 } else { 0 };
        let address = PhysAddr::new(high & !3);
        let store = bit(low, 5).then_some(Store { address, value: low >> 32, size: 4 });
        let used = if store.is_some() { !3 } else { !0 };
        let completion = Completion { store, interrupt: bit(low, 4) };
        (Effect::Completion(completion), [0xffff_ffff_0000_0070 | drains, used])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// QEMU's units, in legacy and in scalable mode, and one that can do all.
    fn mode() -> impl Strategy<Value = Mode> {
        let capability = Capability(0x00d2_008c_222f_0606);
        let legacy = ExtendedCapability(0x00f0_0f5a);
        let all = ExtendedCapability(0x6f7_20f0_0f5e);
        prop::sample::select(vec![
            Mode { capability, extended: legacy, wide: false, scalable: false },
            Mode { capability, extended: legacy, wide: true, scalable: false },
            Mode { capability, extended: all, wide: true, scalable: true },
            Mode { capability, extended: all, wide: false, scalable: true },
        ])
    }

    /// Bits that may be set in descriptors of a kind, by the figures of VT-d 6.5.2 and 7.6.1; `all`
    /// says that the unit can do all.
    fn defined(kind: u64, all: bool) -> [u64; 2] {
        let word = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        match kind {
            1 => [word(0x3_ffff, 0xffff_0031), 0],
            2 => [word(0, 0xffff_00f2), word(!0, 0xffff_f07f)],
            3 => [word(0xfff0_ffff, 0x1f_f003), word(!0, 0xffff_f001)],
            4 => [word(0xffff, 0xf800_0014), 0],
            5 => [word(!0, if all { 0xf5 } else { 0x75 }), word(!0, 0xffff_ffff)],
            6 => [word(0xf_ffff, 0xffff_0036), word(!0, 0xffff_f07f)],
            7 => [word(0xf_ffff, 0xffff_0037), 0],
            8 => [word(0xffff_ffff, 0xffff_f1f8), word(!0, 0xffff_f801)],
            9 => [word(!0, 0xffff_f1ff), !0],
            _ => [0, 0],
        }
    }

    /// A descriptor: mostly one of a kind that exists, with the bits that it may have, and pages
    /// and interrupts of an order that the unit knows or not.
    fn raw() -> impl Strategy<Value = [u64; 4]> {
        let words = prop::array::uniform4(any::<u64>());
        (0u64..12, words, 0u32..16, 0u64..24).prop_map(|(kind, words, odd, order)| {
            let [low, high, third, fourth] = words;
            let defined = defined(kind, true);
            let order =
                if kind == 4 { [low & !(0xf << 27), high] } else { [low, high & !0x3f | order] };
            match odd {
                0 => [low & !0xf | kind, high, third, fourth],
                1 => [low & defined[0] & !0xf | kind, high & defined[1], third, fourth],
                2 => [low & defined[0] & !0xf | kind, high & defined[1] & !3, 0, 0],
                _ => [order[0] & defined[0] & !0xf | kind, order[1] & defined[1], 0, 0],
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// What a unit forgets is looked at again: for each device, domain and page that the
        /// descriptor is about (the figures of VT-d 6.5.2), the effect is about it as well.
        #[test]
        fn effects_cover_what_is_forgotten(
            mode in mode(),
            raw in raw(),
            device: u16,
            domain: u16,
            page in 0u64..1 << 36,
            index: u16,
            same in any::<[bool; 4]>(),
        ) {
            let [low, high, ..] = raw;
            let granularity = low >> 4 & 3;
            // One that the descriptor names, or any.
            let domain = if same[0] { (low >> 16) as u16 } else { domain };
            let device = if same[1] { (low >> 32) as u16 ^ (device & 7) } else { device };
            let page = if same[2] { high >> 12 ^ (page & 0xff) } else { page };
            let index = if same[3] { (low >> 32) as u16 ^ (index & 0xf) } else { index };
            let Ok(effect) = mode.decode(raw) else { return Ok(()) };
            match low & 0xf {
                1 => {
                    let function_bits = [0xffff, 0xfffb, 0xfff9, 0xfff8][(low >> 48 & 3) as usize];
                    let forgotten = match granularity {
                        1 => true,
                        2 => mode.scalable || domain == (low >> 16) as u16,
                        _ => (device ^ (low >> 32) as u16) & function_bits == 0,
                    };
                    let Effect::Devices(devices) = effect else { panic!("{effect:?}") };
                    let covered = devices.contain(Requester(device), DomainId(domain));
                    prop_assert_eq!(covered, forgotten);
                }
                2 => {
                    let in_domain = domain == (low >> 16) as u16;
                    let in_piece = (page ^ high >> 12) >> (high & 0x3f).min(63) == 0;
                    let forgotten = match granularity {
                        1 => true,
                        2 => in_domain,
                        _ => in_domain && in_piece,
                    };
                    let Effect::Mappings(of, range) = effect else { panic!("{effect:?}") };
                    let covered = of.is_none_or(|of| of == DomainId(domain))
                        && range.is_none_or(|range| range.contains(&(page << 12)));
                    prop_assert_eq!(covered, forgotten);
                }
                4 => {
                    let order = low >> 27 & 0x1f;
                    let named = (index ^ (low >> 32) as u16) >> order.min(15) == 0;
                    let Effect::Interrupts(range) = effect else { panic!("{effect:?}") };
                    prop_assert_eq!(range.contains(&index), low & 0x10 == 0 || named);
                }
                5 => {
                    let Effect::Completion(completion) = effect else { panic!("{effect:?}") };
                    prop_assert_eq!(completion.interrupt, low & 0x10 != 0);
                    prop_assert_eq!(completion.store.is_some(), low & 0x20 != 0);
                    if let Some(store) = completion.store {
                        prop_assert_eq!((store.address.get(), store.value), (high, low >> 32));
                    }
                }
                3 | 8 | 9 => prop_assert!(matches!(effect, Effect::ToDevice(_))),
                6 => prop_assert!(matches!(effect, Effect::ProcessMappings(..))),
                7 => prop_assert!(matches!(effect, Effect::Processes(..))),
                kind => panic!("{kind} is none"),
            }
        }

        /// What the manual does not define is invalid (VT-d 6.5.2 and table 26).
        #[test]
        fn what_is_reserved_is_invalid(mode in mode(), raw in raw(), bit in 0usize..1024) {
            let mut raw = raw;
            // Sometimes one bit more.
            if let Some(word) = raw.get_mut(bit / 64) {
                *word |= 1 << (bit % 64);
            }
            let [low, high, third, fourth] = raw;
            let granularity = low >> 4 & 3;
            let order = high & 0x3f;
            let all = mode.extended.has_device_tlbs();
            let exists = match low & 0xf {
                1 => granularity != 0,
                2 => granularity != 0 && (granularity != 3 || order <= 18),
                3 => all,
                4 => low & 0x10 == 0 || low >> 27 & 0x1f <= 15,
                5 => low & 0x20 == 0 || high & 3 == 0,
                6 => granularity >= 2,
                7 => granularity != 2,
                kind => kind == 8 || kind == 9,
            };
            let in_mode = match (mode.scalable, mode.wide) {
                (true, wide) => wide,
                (false, _) => low & 0xf <= 5,
            };
            let defined = defined(low & 0xf, all);
            let beyond = low & !defined[0] | high & !defined[1];
            let rest = low & 0xf != 9 && third | fourth != 0;
            let is_valid = in_mode && exists && beyond == 0 && !rest;
            prop_assert_eq!(mode.decode(raw).is_ok(), is_valid, "{:x?}", raw);
        }
    }

    #[test]
    fn descriptors_of_linux() {
        let mode = Mode {
            capability: Capability(0x00d2_008c_222f_0606),
            extended: ExtendedCapability(0x00f0_0f5a),
            wide: false,
            scalable: false,
        };
        let decode = |low, high| mode.decode([low, high, 0, 0]);
        // Index 20 of the interrupts; a domain of which reads and writes are drained; a wait.
        assert_eq!(decode(20 << 32 | 0x14, 0), Ok(Effect::Interrupts(20..=20)));
        let few = ExtendedCapability(0x0020_0f5a);
        let decode_by_few = |low| Mode { extended: few, ..mode }.decode([low, 0, 0, 0]);
        assert_eq!(decode_by_few(21 << 32 | 2 << 27 | 0x14), Ok(Effect::Interrupts(20..=23)));
        assert_eq!(decode_by_few(21 << 32 | 3 << 27 | 0x14), Err(Invalid::Reserved));
        assert_eq!(decode(3 << 16 | 0xe2, 0), Ok(Effect::Mappings(Some(DomainId(3)), None)));
        let pages = Effect::Mappings(Some(DomainId(3)), Some(0xffff_e000..=0xffff_ffff));
        assert_eq!(decode(3 << 16 | 0xf2, 0xffff_f001), Ok(pages));
        let store = Store { address: PhysAddr::new(0x1234_5678), value: 2, size: 4 };
        let completion = Completion { store: Some(store), interrupt: false };
        assert_eq!(decode(2 << 32 | 0x25, 0x1234_5678), Ok(Effect::Completion(completion)));
    }
}

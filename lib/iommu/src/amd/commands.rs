// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of the command buffer, 128 bits each (IOMMU 2.4).

use crtos_partition::address::PhysAddr;

use crate::effect::{Completion, Devices, Effect, Invalid, Store, piece};
use crate::{DomainId, Requester, bit, field};

/// What a command means.
pub fn decode(raw: [u64; 2]) -> Result<Effect, Invalid> {
    let [low, high] = raw;
    let device = Requester(low as u16);
    let (effect, used) = match low >> 60 {
        // COMPLETION_WAIT (IOMMU 2.4.1).
        1 => {
            let address = PhysAddr::new(low & 0x000f_ffff_ffff_fff8);
            let store = bit(low, 0).then_some(Store { address, value: high, size: 8 });
            let completion = Completion { store, interrupt: bit(low, 1) };
            (Effect::Completion(completion), [0x000f_ffff_ffff_ffff, !0])
        }
        // INVALIDATE_DEVTAB_ENTRY (IOMMU 2.4.2).
        2 => (Effect::Devices(Devices::Like(device, 0)), [0xffff, 0]),
        // INVALIDATE_IOMMU_PAGES (IOMMU 2.4.3).
        3 => {
            let domain = DomainId(field(low, 32, 16) as u16);
            // The lowest bit of the address that is clear says the size, if there is one.
            let order = if bit(high, 0) { (high | 0xfff).trailing_ones() + 1 } else { 12 };
            let range = piece(high, order);
            let effect = match bit(high, 2) {
                true => Effect::ProcessMappings(domain, field(low, 0, 20) as u32, range),
                false => Effect::Mappings(Some(domain), range),
            };
            (effect, [0xffff_000f_ffff, !0xff8])
        }
        // INVALIDATE_IOTLB_PAGES (IOMMU 2.4.4), COMPLETE_PPR_REQUEST (IOMMU 2.4.7).
        4 | 7 => (Effect::ToDevice(device), [!0, !0]),
        // INVALIDATE_INTERRUPT_TABLE (IOMMU 2.4.5).
        5 => (Effect::InterruptsOf(device), [0xffff, 0]),
        // PREFETCH_IOMMU_PAGES (IOMMU 2.4.6).
        6 => (Effect::Nothing, [!0, !0]),
        // INVALIDATE_IOMMU_ALL (IOMMU 2.4.8).
        8 => (Effect::All, [0, 0]),
        _ => return Err(Invalid::Kind),
    };
    let unused = low & !(used[0] | 0xf << 60) | high & !used[1];
    if unused != 0 { Err(Invalid::Reserved) } else { Ok(effect) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What a unit forgets is looked at again.
        #[test]
        fn effects_cover_what_is_forgotten(
            kind in 0u64..16,
            bits: u64,
            sparse: bool,
            address: u64,
            size in 0u32..52,
            flags in 0u64..8,
            page in 0u64..1 << 52,
            near: bool,
        ) {
            let low = kind << 60 | if sparse { bits & 0xffff_0000_ffff } else { bits >> 4 };
            let address = address >> size << size | ((1 << size) - 1) >> 1;
            let high = address << 12 | flags;
            let page = if near { address ^ page & 0xff } else { page };
            let Ok(effect) = decode([low, high]) else { return Ok(()) };
            match kind {
                3 => {
                    // Eight KiB if the lowest bit is clear, twice as much for each bit above it.
                    let own = (address << 12 | 0xfff).trailing_ones() - 11;
                    let order = if flags & 1 == 0 { 0 } else { own };
                    let own_bits = (1u64 << 52) - 1;
                    let forgotten = ((page ^ address) & own_bits).checked_shr(order) == Some(0);
                    let (of, range) = match effect {
                        Effect::Mappings(of, range) => (of, range),
                        Effect::ProcessMappings(of, process, range) => {
                            prop_assert_eq!(u64::from(process), low & 0xf_ffff);
                            (Some(of), range)
                        }
                        _ => panic!("{effect:?}"),
                    };
                    prop_assert_eq!(of, Some(DomainId((low >> 32) as u16)));
                    let covered = range.is_none_or(|range| range.contains(&(page << 12)));
                    prop_assert_eq!(covered, forgotten);
                }
                2 => {
                    let Effect::Devices(devices) = effect else { panic!("{effect:?}") };
                    prop_assert!(devices.contain(Requester(low as u16), DomainId(0)));
                }
                5 => prop_assert_eq!(effect, Effect::InterruptsOf(Requester(low as u16))),
                8 => prop_assert_eq!(effect, Effect::All),
                1 => {
                    let Effect::Completion(completion) = effect else { panic!("{effect:?}") };
                    prop_assert_eq!(completion.store.is_some(), low & 1 != 0);
                    if let Some(store) = completion.store {
                        prop_assert!(store.address.is_aligned(8) && store.value == high);
                        prop_assert_eq!(store.address.get(), low & 0xf_ffff_ffff_fff8);
                    }
                }
                4 | 7 => prop_assert_eq!(effect, Effect::ToDevice(Requester(low as u16))),
                6 => prop_assert_eq!(effect, Effect::Nothing),
                kind => panic!("{kind} is none"),
            }
        }
    }

    #[test]
    fn commands_of_linux() {
        let all = Effect::Mappings(Some(DomainId(5)), None);
        assert_eq!(decode([3 << 60 | 5 << 32, 0x7fff_ffff_ffff_f003]), Ok(all));
        let one = Effect::Mappings(Some(DomainId(5)), Some(0x1000..=0x1fff));
        assert_eq!(decode([3 << 60 | 5 << 32, 0x1002]), Ok(one));
        let large = Effect::Mappings(Some(DomainId(5)), Some(0x20_0000..=0x3f_ffff));
        assert_eq!(decode([3 << 60 | 5 << 32, 0x2f_f003]), Ok(large));
        let store = Store { address: PhysAddr::new(0x1000), value: 7, size: 8 };
        let completion = Completion { store: Some(store), interrupt: false };
        assert_eq!(decode([1 << 60 | 0x1001, 7]), Ok(Effect::Completion(completion)));
        assert_eq!(decode([9 << 60, 0]), Err(Invalid::Kind));
        assert_eq!(decode([2 << 60 | 1 << 20, 0]), Err(Invalid::Reserved));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The IOMMU of a guest's machine, as command lines and test headers choose it.

/// The first word of a choice of AMD's kind.
const AMD: &str = "amd";

/// An IOMMU, with options of QEMU's device beside those that are always there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Iommu {
    /// Intel's kind (VT-d).
    Intel(String),
    /// AMD's kind (AMD-Vi).
    Amd(String),
}

impl Default for Iommu {
    fn default() -> Self {
        Self::Intel(String::new())
    }
}

impl From<&str> for Iommu {
    fn from(text: &str) -> Self {
        match text.split_once(',') {
            _ if text == AMD => Self::Amd(String::new()),
            Some((AMD, options)) => Self::Amd(options.to_owned()),
            _ => Self::Intel(text.to_owned()),
        }
    }
}

impl Iommu {
    /// QEMU's device. Linux turns x2APIC on only if interrupts are remapped.
    pub fn device(&self) -> String {
        let (device, options) = match self {
            Self::Intel(options) => ("intel-iommu,intremap=on,eim=on", options),
            Self::Amd(options) => ("amd-iommu,intremap=on,xtsup=on,dma-remap=on", options),
        };
        match options.as_str() {
            "" => device.to_owned(),
            options => format!("{device},{options}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_chooses_the_kind() {
        let device = |text: &str| Iommu::from(text).device();
        assert_eq!(Iommu::from(""), Iommu::default());
        assert_eq!(device(""), "intel-iommu,intremap=on,eim=on");
        assert_eq!(device("aw-bits=48"), "intel-iommu,intremap=on,eim=on,aw-bits=48");
        assert_eq!(device("amd"), "amd-iommu,intremap=on,xtsup=on,dma-remap=on");
        assert_eq!(device("amd,pt=off"), "amd-iommu,intremap=on,xtsup=on,dma-remap=on,pt=off");
    }
}

//! Where a model computes, by a name that is chosen at run time.

use std::fmt;

/// A device of burn. Which of them a program has is decided when it is built, which of those a model uses at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Device {
    /// The processor; always there.
    #[default]
    Flex,
    /// A graphics processor through Vulkan, Metal, DirectX 12 or WebGPU. Needs the cargo feature `wgpu`.
    Wgpu,
    /// An NVIDIA graphics processor through CUDA. Needs the cargo feature `cuda`.
    Cuda,
}

/// Why a device cannot be used, in words for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The program was built without it.
    #[error(
        "device '{0}' is not part of this program; build it with `cargo build --release --features {0}`, or leave 'device' \
         out to compute on the processor"
    )]
    NotBuilt(Device),
    /// It is part of the program, and not of the machine.
    #[error("device '{device}' cannot be used: {reason}")]
    Unusable {
        /// The device.
        device: Device,
        /// What it said to a first addition.
        reason: String,
    },
}

impl Device {
    /// Every device, whether this program has it or not.
    pub const ALL: [Device; 3] = [Device::Flex, Device::Wgpu, Device::Cuda];

    /// Its name in the configuration, which is also that of its cargo feature.
    pub fn name(self) -> &'static str {
        match self {
            Device::Flex => "flex",
            Device::Wgpu => "wgpu",
            Device::Cuda => "cuda",
        }
    }

    /// The device of that name.
    pub fn from_name(name: &str) -> Option<Device> {
        Device::ALL.into_iter().find(|device| device.name() == name)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

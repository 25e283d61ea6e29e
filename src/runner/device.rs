//! Where a model computes: burn's devices, by a name that is chosen at run time.

use std::fmt;

use burn::tensor::{Device as BurnDevice, Tensor};

use super::fence::fenced;

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

    /// burn's handle to the device, the first of its kind on the machine. Adds two numbers on it, so that a machine
    /// without one says so here and not at the first request.
    pub fn open(self) -> Result<BurnDevice, DeviceError> {
        let device = self.handle().ok_or(DeviceError::NotBuilt(self))?;
        let unusable = |reason: String| DeviceError::Unusable { device: self, reason };
        // burn has no other way than a panic to say that there is no such device.
        match fenced(|| (Tensor::<1>::ones([1], &device) + 1.0).try_into_vec_as::<f32>()) {
            Ok(Ok(two)) if two == [2.0] => Ok(device),
            Ok(Ok(other)) => Err(unusable(format!("on it 1 + 1 is {other:?}"))),
            Ok(Err(error)) => Err(unusable(error.to_string())),
            Err(panic) => Err(unusable(panic)),
        }
    }

    /// burn's handle, if the device is part of the program.
    fn handle(self) -> Option<BurnDevice> {
        match self {
            Device::Flex => Some(BurnDevice::flex()),
            #[cfg(feature = "wgpu")]
            Device::Wgpu => Some(BurnDevice::wgpu(burn::tensor::DeviceKind::DefaultDevice)),
            #[cfg(feature = "cuda")]
            Device::Cuda => Some(BurnDevice::cuda(burn::tensor::DeviceIndex::Default)),
            #[cfg(not(all(feature = "wgpu", feature = "cuda")))]
            _ => None,
        }
    }

    /// Whether this program was built with the device.
    pub fn is_built(self) -> bool {
        match self {
            Device::Flex => true,
            Device::Wgpu => cfg!(feature = "wgpu"),
            Device::Cuda => cfg!(feature = "cuda"),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_was_not_compiled_in_says_which_feature_to_build_with() {
        for device in Device::ALL.into_iter().filter(|device| !device.is_built()) {
            let error = device.open().expect_err("it is not there").to_string();
            assert!(error.contains(&format!("--features {device}")), "{error}");
        }
        assert_eq!(Device::Flex.open(), Ok(BurnDevice::flex()));
    }
}

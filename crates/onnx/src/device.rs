//! burn's devices by their names.

use burn::tensor::{Device as BurnDevice, Tensor};
use uncork_model::runner::{Device, DeviceError};

use crate::fence::caught;

/// burn's handle to the device, the first of its kind on the machine. Adds two numbers on it, so that a machine without one
/// says so here and not at the first request.
pub fn open(device: Device) -> Result<BurnDevice, DeviceError> {
    let handle = handle(device).ok_or(DeviceError::NotBuilt(device))?;
    let unusable = |reason: String| DeviceError::Unusable { device, reason };
    // burn has no other way than a panic to say that there is no such device.
    match caught(|| (Tensor::<1>::ones([1], &handle) + 1.0).try_into_vec_as::<f32>()) {
        Ok(Ok(two)) if two == [2.0] => Ok(handle),
        Ok(Ok(other)) => Err(unusable(format!("on it 1 + 1 is {other:?}"))),
        Ok(Err(error)) => Err(unusable(error.to_string())),
        Err(panic) => Err(unusable(panic)),
    }
}

/// burn's handle, if the device is part of the program.
fn handle(device: Device) -> Option<BurnDevice> {
    match device {
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
pub fn is_built(device: Device) -> bool {
    match device {
        Device::Flex => true,
        Device::Wgpu => cfg!(feature = "wgpu"),
        Device::Cuda => cfg!(feature = "cuda"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_was_not_compiled_in_says_which_feature_to_build_with() {
        for device in Device::ALL.into_iter().filter(|device| !is_built(*device)) {
            let error = open(device).expect_err("it is not there").to_string();
            assert!(error.contains(&format!("--features {device}")), "{error}");
        }
        assert_eq!(open(Device::Flex), Ok(BurnDevice::flex()));
    }
}

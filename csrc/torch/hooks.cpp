// What torch asks of an accelerator besides streams and memory.
#include "csrc/torch/hooks.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "csrc/engine/engine.h"
#include "csrc/torch/allocator.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/generator.h"
#include "csrc/torch/tensor.h"

namespace npu {
namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return initialized() && !in_bad_fork();
  }
  void init() const override { check_usable(); }

  c10::DeviceIndex deviceCount() const override {
    return c10::DeviceIndex(npu::device_count());
  }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    npu::exchange_device(index);
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return c10::DeviceIndex(current_device());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return c10::DeviceIndex(npu::exchange_device(index));
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }

  bool isPinnedPtr(const void* pointer) const override {
    return is_pinned(pointer);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return pinned_allocator();
  }
  at::Device getDeviceFromPtr(void* pointer) const override {
    for (int device = 0; device < npu::device_count(); ++device)
      if (allocator_exists(device) && allocator(device).find(pointer))
        return at::Device(kNpu, c10::DeviceIndex(device));
    TORCH_CHECK(false, "npu: ", pointer, " is not memory of an npu device");
  }

  const at::Generator& getDefaultGenerator(
      c10::DeviceIndex index) const override {
    return default_generator(existing(index));
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return make_generator(existing(index));
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage,
                              size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }

 private:
  static int existing(c10::DeviceIndex index) {
    const int device = device_or_current(index);
    TORCH_CHECK_INDEX(device < npu::device_count(), "npu: no device ", device,
                      ": this process has ", npu::device_count());
    return device;
  }
};

}  // namespace

void register_hooks() {
  // Leaked: torch keeps the pointer until after static destruction.
  at::RegisterPrivateUse1HooksInterface(new Hooks);
}

}  // namespace npu

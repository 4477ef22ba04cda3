// What the engine asks of a device.
#pragma once

#include "npu_dispatch/include/npu_driver.h"

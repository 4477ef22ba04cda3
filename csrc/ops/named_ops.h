// Generated operators that code written by hand launches.
#pragma once

namespace npu {

struct Op;

const Op& op_of_addmm();

}  // namespace npu

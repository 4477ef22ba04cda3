// Where other hosts of a job reach this process.
#pragma once

#include <string>

namespace npu {

// Returns the address, as digits, that the `size` ranks of a job can connect to
// for this one: that of GLOO_SOCKET_IFNAME, else the source of the route to
// MASTER_ADDR. It is a loopback address only where that is all there is, or
// where the ranks are on one host: a host's name often stands for 127.0.1.1 on
// the host itself. Throws where GLOO_SOCKET_IFNAME names no interface with an
// address.
std::string own_address(int size);

}  // namespace npu

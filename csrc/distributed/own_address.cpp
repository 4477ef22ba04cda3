#include "csrc/distributed/own_address.h"

#include <arpa/inet.h>
#include <c10/util/Exception.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "csrc/base/env.h"

namespace npu {
namespace {

bool is_loopback(const sockaddr& a) {
  if (a.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(a);
    return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(a).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) ||
         (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

std::string digits(const sockaddr& a) {
  const socklen_t size =
      a.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char text[NI_MAXHOST];
  const int error =
      getnameinfo(&a, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return error ? "" : text;
}

struct Source {
  std::string address;  // "": the host has no address, or no route leads there
  bool loopback = false;
};

// Which address of this host packets to `host` have. Sends none.
Source source_towards(const char* host) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(host, "9", &wanted, &found)) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found,
                                                             freeaddrinfo);
  for (const addrinfo* to = found; to; to = to->ai_next) {
    const int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    auto& address = reinterpret_cast<sockaddr&>(from);
    const bool known = !connect(fd, to->ai_addr, to->ai_addrlen) &&
                       !getsockname(fd, &address, &size);
    close(fd);
    if (known) return {digits(address), is_loopback(address)};
  }
  return {};
}

// An address of the interface, or of any that leads to other hosts. IPv4 first.
std::string interface_address(const std::string& interface) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all)) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(all, freeifaddrs);
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* one = all; one; one = one->ifa_next) {
      if (!one->ifa_addr || one->ifa_addr->sa_family != family) continue;
      if (interface.empty()
              ? !(one->ifa_flags & IFF_UP) || is_loopback(*one->ifa_addr)
              : interface != one->ifa_name)
        continue;
      // An address of the link alone means something else on each host.
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr);
      if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) continue;
      return digits(*one->ifa_addr);
    }
  return "";
}

bool on_one_host(const std::string& master, int size) {
  if (const auto here = env_int("LOCAL_WORLD_SIZE", 0, 0, INT32_MAX))
    return here >= size;
  return master == "localhost" || master == "::1" || !master.find("127.");
}

}  // namespace

std::string own_address(int size) {
  const std::string named = env_string("GLOO_SOCKET_IFNAME", "");
  if (!named.empty()) {
    const std::string interface = named.substr(0, named.find(','));
    std::string address = interface_address(interface);
    TORCH_CHECK(!address.empty(), "hccl: GLOO_SOCKET_IFNAME names ", interface,
                ", and this host has no such interface with an address; see "
                "what `ip address` lists");
    return address;
  }
  char own[256] = "localhost";
  gethostname(own, sizeof own - 1);
  const std::string host = env_string("MASTER_ADDR", own);
  const Source source = source_towards(host.c_str());
  if (!source.address.empty() && (!source.loopback || on_one_host(host, size)))
    return source.address;
  std::string other = interface_address("");
  if (!other.empty()) return other;
  return source.address.empty() ? "127.0.0.1" : source.address;
}

}  // namespace npu

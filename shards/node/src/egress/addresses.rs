//! Which addresses actors may connect to: public ones, and the ranges the operator allowed. Pure.
//!
//! What is not public is judged by the registries of special-purpose addresses (IANA, RFC 6890). IPv6 has many
//! ways to write an IPv4 address inside one of its own; each is judged by where a packet to it could end up.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// IPv4 that is not the public internet.
const SPECIAL_V4: [Ipv4Net; 15] = [
    v4([0, 0, 0, 0], 8),       // this network; connecting to 0.0.0.0 reaches this machine
    v4([10, 0, 0, 0], 8),      // private
    v4([100, 64, 0, 0], 10),   // carrier-grade NAT
    v4([127, 0, 0, 0], 8),     // loopback
    v4([169, 254, 0, 0], 16),  // link-local, metadata services of clouds
    v4([172, 16, 0, 0], 12),   // private
    v4([192, 0, 0, 0], 24),    // protocol assignments
    v4([192, 0, 2, 0], 24),    // documentation
    v4([192, 88, 99, 0], 24),  // 6to4 relays
    v4([192, 168, 0, 0], 16),  // private
    v4([198, 18, 0, 0], 15),   // benchmarking
    v4([198, 51, 100, 0], 24), // documentation
    v4([203, 0, 113, 0], 24),  // documentation
    v4([224, 0, 0, 0], 4),     // multicast
    v4([240, 0, 0, 0], 4),     // reserved, broadcast
];

/// The only part of IPv6 that is handed out as public addresses. Loopback, unspecified, v4-compatible,
/// link-local, unique local, multicast and everything unassigned are outside of it.
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0, 0, 0], 3);

/// Parts of [`GLOBAL_V6`] that are not public.
const SPECIAL_V6: [Ipv6Net; 4] = [
    v6([0x2001, 0, 0, 0], 23),     // protocol assignments: Teredo, benchmarking, ORCHID
    v6([0x2001, 0xdb8, 0, 0], 32), // documentation
    v6([0x2002, 0, 0, 0], 16),     // 6to4: its tunnels end at an IPv4 address of the sender's choice
    v6([0x3fff, 0, 0, 0], 20),     // documentation
];

/// A NAT64 gateway turns these into the IPv4 address in their last 32 bits. The prefix for local use,
/// 64:ff9b:1::/48, is outside of [`GLOBAL_V6`] like all others.
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0, 0], 96);

const fn v4([a, b, c, d]: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6([a, b, c, d]: [u16; 4], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), prefix)
}

/// Whether an actor may connect to `address`.
pub(super) fn may_connect(address: IpAddr, allowed: &[OutboundRange]) -> bool {
    // A packet to a v4-mapped address is an IPv4 packet.
    let address = address.to_canonical();
    allowed.iter().any(|range| range.0.contains(&address)) || is_public(address)
}

/// Whether the internet leads there.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !SPECIAL_V4.iter().any(|special| special.contains(&address)),
        IpAddr::V6(address) if NAT64.contains(&address) => is_public(IpAddr::V4(last_32_bits(address))),
        IpAddr::V6(address) => {
            GLOBAL_V6.contains(&address)
                && !SPECIAL_V6.iter().any(|special| special.contains(&address))
                && !is_isatap(address)
        }
    }
}

fn last_32_bits(address: Ipv6Addr) -> Ipv4Addr {
    let [.., a, b, c, d] = address.octets();
    Ipv4Addr::new(a, b, c, d)
}

/// An interface identifier that tunnels to the IPv4 address in its last 32 bits (RFC 5214).
fn is_isatap(address: Ipv6Addr) -> bool {
    let [_, _, _, _, scope, mark, _, _] = address.segments();
    mark == 0x5efe && matches!(scope, 0 | 0x200)
}

/// Addresses that actors may reach although they are not public: one `--allow-outbound`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboundRange(IpNet);

impl FromStr for OutboundRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = match text.parse::<IpAddr>() {
            Ok(address) => IpNet::from(address),
            Err(_) => text.parse().map_err(|_| {
                "write addresses with the length of their prefix, like 10.1.0.0/16 or fd00::/8".to_owned()
            })?,
        };
        if range.trunc() != range {
            let meant = range.trunc();
            return Err(format!("{text} has bits behind its prefix; write {meant} for the whole range"));
        }
        Ok(Self(range))
    }
}

impl fmt::Display for OutboundRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(texts: &[&str]) -> Vec<OutboundRange> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    // case H9
    #[test]
    fn only_public_addresses_are_reached() {
        for (address, reached) in [
            ("8.8.8.8", true),
            ("1.1.1.1", true),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("9.255.255.255", true),
            ("10.0.0.1", false),
            ("11.0.0.0", true),
            ("100.63.255.255", true),
            ("100.64.0.1", false),
            ("100.127.255.255", false),
            ("100.128.0.0", true),
            ("127.0.0.1", false),
            ("127.255.255.254", false),
            ("169.254.169.254", false),
            ("172.15.255.255", true),
            ("172.16.0.1", false),
            ("172.31.255.255", false),
            ("172.32.0.0", true),
            ("192.0.0.1", false),
            ("192.0.2.1", false),
            ("192.88.99.1", false),
            ("192.168.0.1", false),
            ("198.17.255.255", true),
            ("198.18.0.1", false),
            ("198.19.255.255", false),
            ("198.51.100.7", false),
            ("203.0.113.7", false),
            ("224.0.0.1", false),
            ("239.255.255.255", false),
            ("240.0.0.1", false),
            ("255.255.255.255", false),
            ("2606:4700:4700::1111", true),
            ("2a00:1450:4001::1", true),
            ("::", false),
            ("::1", false),
            // v4-mapped: the kernel sends IPv4.
            ("::ffff:127.0.0.1", false),
            ("::ffff:7f00:1", false),
            ("::ffff:10.0.0.1", false),
            ("::ffff:8.8.8.8", true),
            // v4-compatible, v4-translated.
            ("::127.0.0.1", false),
            ("::8.8.8.8", false),
            ("::ffff:0:127.0.0.1", false),
            // NAT64, well-known and local.
            ("64:ff9b::a9fe:a9fe", false),
            ("64:ff9b::127.0.0.1", false),
            ("64:ff9b::10.0.0.1", false),
            ("64:ff9b::8.8.8.8", true),
            ("64:ff9b:1::8.8.8.8", false),
            ("64:ff9b:1:a00:1::", false),
            // 6to4, Teredo, ISATAP.
            ("2002:7f00:1::", false),
            ("2002:808:808::1", false),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", false),
            ("2a00::5efe:127.0.0.1", false),
            ("2a00::200:5efe:127.0.0.1", false),
            ("fe80::5efe:10.0.0.1", false),
            // Everything else that is not public.
            ("2001:2::1", false),
            ("2001:10::1", false),
            ("2001:db8::1", false),
            ("3fff::1", false),
            ("100::1", false),
            ("5f00::1", false),
            ("fc00::1", false),
            ("fd12:3456::1", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
            ("4000::1", false),
        ] {
            assert_eq!(may_connect(address.parse().unwrap(), &[]), reached, "{address}");
        }
    }

    // case H9
    #[test]
    fn a_range_that_was_allowed_opens_itself_and_nothing_else() {
        let allowed = ranges(&["127.0.0.0/8", "10.1.0.0/16", "fd00::/8", "192.168.7.7"]);
        for (address, reached) in [
            ("127.0.0.1", true),
            ("::ffff:127.0.0.1", true),
            ("::1", false),
            ("::127.0.0.1", false),
            ("64:ff9b::7f00:1", false),
            ("2002:7f00:1::", false),
            ("10.1.255.255", true),
            ("10.2.0.0", false),
            ("fd00::1", true),
            ("fc00::1", false),
            ("192.168.7.7", true),
            ("192.168.7.8", false),
            ("8.8.8.8", true),
        ] {
            assert_eq!(may_connect(address.parse().unwrap(), &allowed), reached, "{address}");
        }
    }

    // R-FLAG-2, R-FLAG-5
    #[test]
    fn a_range_is_read_whole_or_refused_with_what_to_write() {
        for (text, read) in [
            ("127.0.0.0/8", Ok("127.0.0.0/8")),
            ("10.0.0.1", Ok("10.0.0.1/32")),
            ("fd00::/8", Ok("fd00::/8")),
            ("::1", Ok("::1/128")),
            ("0.0.0.0/0", Ok("0.0.0.0/0")),
            ("10.0.0.1/8", Err("write 10.0.0.0/8")),
            ("10.0.0.0/33", Err("10.1.0.0/16")),
            ("10.0.0.0-10.0.0.9", Err("10.1.0.0/16")),
            ("localhost", Err("10.1.0.0/16")),
            ("", Err("10.1.0.0/16")),
        ] {
            match (text.parse::<OutboundRange>(), read) {
                (Ok(range), Ok(expected)) => assert_eq!(range.to_string(), expected),
                (Err(sentence), Err(part)) => assert!(sentence.contains(part), "{text}: {sentence}"),
                (got, _) => panic!("{text}: {got:?}"),
            }
        }
    }
}

"""Hosts as people have them: which interfaces have a cable, and what shows the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# hosts of network plugins, as people have them: their cables, and what shows the same bytes
HOSTS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "plain": (["eth0"], []),
    "AWS VPC CNI": (["ens5"], ["eni0a1b2c3d4e5", "pod-id-link0", "vlan.eth.1"]),
    "AWS, two network cards": (["ens5", "ens6"], ["eni0a1b2c3d4e5"]),
    "OVN-Kubernetes": (["ens3"], ["0e1f2a3b4c5d6e7", "ovn-k8s-mp0", "br-ex", "genev_sys_6081"]),
    "Kube-OVN": (["ens3"], ["0a1b2c3d4e5f_h", "ovn0", "mirror0"]),
    "GKE": (["eth0"], ["gke1a2b3c4d5e6"]),
    "Azure CNI": (["eth0"], ["azv1a2b3c4d5e6", "azure0", "enP53091s1np0"]),
    "flannel": (["ens18"], ["veth1a2b3c4d", "cni0", "flannel.1"]),
    "Calico": (["ens18"], ["cali0a1b2c3d4e5", "tunl0", "vxlan.calico", "wireguard.cali"]),
    "Canal": (["ens18"], ["cali0a1b2c3d4e5", "flannel.1"]),
    "Cilium": (["ens18"], ["lxc0a1b2c3d4e5", "cilium_host", "cilium_net", "cilium_wg0"]),
    "Antrea": (["enp3s0f0np0"], ["antrea-gw0", "kafka-0-1a2b3c", "ovs-system"]),
    "Weave": (["eno1"], ["weave", "vethwe-bridge", "datapath", "vxlan-6784"]),
    "kube-router": (["eno8303"], ["kube-bridge", "kube-ipvs0", "kube-dummy-if", "tun-1000"]),
    "bond": (["eth0", "eth1"], ["bond0", "bond0.100"]),
    "bond with a name of its own": (["eno1", "eno2"], ["lacp0"]),
    "team": (["p1p1", "p1p2"], ["team0"]),
    "only a bond is scraped": (["bond0"], ["bond0.100"]),
    "Proxmox": (["eth0"], ["vmbr0", "fwbr100i0", "fwpr100p0", "fwln100i0", "tap100i0"]),
    "nerdctl, k3d": (["eth0"], ["nerdctl0", "net1", "k3d0"]),
    "virtual functions": (["enp59s0f0np0"], ["enp59s0f0v0", "enp59s0f0npf0vf0", "ens1f0_0"]),
    "libvirt, LXD": (["enx001122334455"], ["virbr0", "vnet3", "macvtap0", "lxdbr0"]),
    "VLAN, macvlan": (["eth0"], ["eth0.100", "vlan7", "macvlan1", "ipvl_3", "macsec0"]),
    "VPN": (["enX0"], ["wg0", "tailscale0", "tun0", "ppp0", "ipsec0"]),
    "InfiniBand": (["ib0"], ["ib0.8001"]),
    "many PCI domains": (["enP2p1s0f0"], ["docker0"]),
    "a name of its own, alone": (["uplink"], ["docker0"]),
}
UNCLEAR: Mapping[str, tuple[str, ...]] = {
    "a VLAN with a name of its own": ("ens5", "storage"),
    "members with names of their own": ("bond0", "left", "right"),
    "two of unknown kind": ("lan", "wan"),
    "a bond of members that are not scraped": ("bond0", "eno1"),
    "a new plugin": ("ens5", "foo0a1b2c3d"),
}

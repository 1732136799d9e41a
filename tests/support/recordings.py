"""What hardware and its programs answer, written after their documented formats; none of it is from a machine here."""

from collections.abc import Callable, Mapping

MACMON_LINE = (
    b'{"timestamp":"2026-01-02T03:04:05.678+00:00","temp":{"cpu_temp_avg":43.25,"gpu_temp_avg":36.5},'
    b'"memory":{"ram_total":25769803776,"ram_usage":20985479168,"swap_total":4294967296,"swap_usage":2602434560},'
    b'"ecpu_usage":[1181,0.082],"pcpu_usage":[1974,0.015],"gpu_usage":[461,0.25],"cpu_power":5.5,"gpu_power":4.2,'
    b'"ane_power":0.05,"all_power":9.75,"sys_power":21.5,"ram_power":0.11,"gpu_ram_power":0.003}\n'
)


def answer_from(answers: Mapping[str, str]) -> Callable[..., str]:
    """Answer a command by itself, or by its program; empty when it is not recorded."""

    def ask(*command: str) -> str:
        return answers.get(" ".join(command), answers.get(command[0], ""))

    return ask


HARDWARE_PORTS = """
Hardware Port: Ethernet
Device: en0
Ethernet Address: 00:00:5e:00:53:00

Hardware Port: Wi-Fi
Device: en1
Ethernet Address: 00:00:5e:00:53:01

Hardware Port: Thunderbolt 1
Device: en2
Ethernet Address: 00:00:5e:00:53:02

Hardware Port: Thunderbolt 2
Device: en3
Ethernet Address: 00:00:5e:00:53:03

Hardware Port: Thunderbolt Bridge
Device: bridge0
Ethernet Address: 00:00:5e:00:53:02

Hardware Port: Thunderbolt Ethernet Slot 1
Device: en7
Ethernet Address: 00:00:5e:00:53:07

VLAN Configurations
===================
"""

THUNDERBOLT_PROFILE = """
{"SPThunderboltDataType": [
  {"_name": "thunderboltusb4_bus_1", "device_name_key": "Mac Studio",
   "domain_uuid_key": "11111111-0000-0000-0000-000000000002",
   "_items": [{"_name": "Mac Studio", "device_name_key": "Mac Studio", "vendor_name_key": "Apple Inc.",
               "domain_uuid_key": "22222222-0000-0000-0000-000000000001", "mode_key": "usb_four"}],
   "receptacle_1_tag": {"current_speed_key": "80 Gb/s", "link_status_key": "0x2", "receptacle_id_key": "2",
                        "receptacle_status_key": "receptacle_connected"},
   "route_string_key": "0", "switch_uid_key": "0x05AC", "vendor_name_key": "Apple Inc."},
  {"_name": "thunderboltusb4_bus_0", "device_name_key": "Mac Studio",
   "domain_uuid_key": "11111111-0000-0000-0000-000000000001",
   "receptacle_1_tag": {"current_speed_key": "Up to 80 Gb/s", "link_status_key": "0x7", "receptacle_id_key": "1",
                        "receptacle_status_key": "receptacle_no_devices_connected"},
   "route_string_key": "0", "switch_uid_key": "0x05AC", "vendor_name_key": "Apple Inc."}
]}
"""

IBV_DEVICES = """    device          \t   node GUID
    ------          \t----------------
    rdma_en2        \t8e7a1b0000000001
    rdma_en3        \t8e7a1b0000000002
"""

BRIDGE = """bridge0: flags=8863<UP,BROADCAST,SMART,RUNNING,SIMPLEX,MULTICAST> mtu 1500
\toptions=63<RXCSUM,TXCSUM,TSO4,TSO6>
\tether 00:00:5e:00:53:02
\tConfiguration:
\t\tid 0:0:0:0:0:0 priority 0 hellotime 0 fwddelay 0
\tmember: en2 flags=3<LEARNING,DISCOVER>
\t        ifmaxaddr 0 port 8 priority 0 path cost 0
\tmember: en3 flags=3<LEARNING,DISCOVER>
\t        ifmaxaddr 0 port 9 priority 0 path cost 0
\tmedia: <unknown type>
\tstatus: active
"""

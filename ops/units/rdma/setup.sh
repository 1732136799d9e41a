#!/bin/sh
# Prepares a Mac's network for RDMA over Thunderbolt: the bridge off, one DHCP service for each port.
#
#   sudo ops/units/rdma/setup.sh            do it
#   sudo ops/units/rdma/setup.sh --dry-run  say what would be done
#   sudo ops/units/rdma/setup.sh --undo     back to the location that was there before
#
# Works in a network location of its own, "exo", so that what was set up before stays as it was.
# Running it again changes nothing that is right already. docs/rdma.md has the steps before and after.

set -eu

LOCATION="exo"
BRIDGE_SERVICE="Thunderbolt Bridge"
BRIDGE_DEVICE="bridge0"
MODE="${1:-}"

say() { printf '%s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Prints a command, and runs it unless this is a dry run.
run() {
    say "+ $*"
    [ "$MODE" = "--dry-run" ] || "$@"
}

check_machine() {
    [ "$(uname -s)" = "Darwin" ] || fail "this is $(uname -s): RDMA over Thunderbolt is a matter of macOS"
    [ "$MODE" = "--dry-run" ] || [ "$(id -u)" -eq 0 ] || fail "run it with sudo: it changes network services"
}

# Warns of what only a person can do; nothing here needs it to be done first.
check_rdma() {
    command -v rdma_ctl >/dev/null 2>&1 || { say "note: no rdma_ctl: RDMA needs macOS 26.2 or later"; return; }
    case "$(rdma_ctl status 2>/dev/null || true)" in
        *disabled* | *not*) say "note: RDMA is off: start into recovery mode and run \`rdma_ctl enable\`" ;;
        *enabled*) say "RDMA is on" ;;
        *) say "note: rdma_ctl does not say whether RDMA is on" ;;
    esac
}

# Prints "port<TAB>device" for each Thunderbolt port; the bridge and Ethernet adapters are none.
list_ports() {
    networksetup -listallhardwareports | awk '
        /^Hardware Port: Thunderbolt [0-9]+$/ { port = substr($0, 16); next }
        /^Device: / && port != "" { print port "\t" $2 }
        { port = "" }'
}

use_location() {
    if networksetup -listlocations | grep -Fxq "$LOCATION"; then
        say "location $LOCATION is there"
    else
        run networksetup -createlocation "$LOCATION" populate
    fi
    if [ "$(networksetup -getcurrentlocation)" != "$LOCATION" ]; then
        remember_location
        run networksetup -switchtolocation "$LOCATION"
    fi
}

location_file() { say "/Library/Preferences/exo.previous-location"; }

remember_location() {
    [ "$MODE" = "--dry-run" ] || networksetup -getcurrentlocation >"$(location_file)"
}

has_service() { networksetup -listallnetworkservices | sed 's/^\*//' | grep -Fxq "$1"; }

turn_bridge_off() {
    if has_service "$BRIDGE_SERVICE"; then
        run networksetup -setnetworkserviceenabled "$BRIDGE_SERVICE" off
    fi
    # The service being off does not let the ports go: each has to leave the bridge.
    members="$(ifconfig "$BRIDGE_DEVICE" 2>/dev/null | awk '/^[[:space:]]*member: / { print $2 }')"
    for member in $members; do
        run ifconfig "$BRIDGE_DEVICE" deletem "$member"
    done
    if ifconfig "$BRIDGE_DEVICE" >/dev/null 2>&1; then
        run ifconfig "$BRIDGE_DEVICE" down
    fi
}

give_each_port_a_service() {
    tab="$(printf '\t')"
    list_ports | while IFS="$tab" read -r port device; do
        service="exo $port"
        if ! has_service "$service"; then
            run networksetup -createnetworkservice "$service" "$port"
        fi
        run networksetup -setnetworkserviceenabled "$service" on
        run networksetup -setdhcp "$service"
        [ "$device" != "en2" ] || say "note: on a Mac Studio leave $port (en2, beside Ethernet) without a cable"
    done
}

undo() {
    file="$(location_file)"
    [ -f "$file" ] || fail "no earlier location is noted: choose one in System Settings, Network, Locations"
    run networksetup -switchtolocation "$(cat "$file")"
    if networksetup -listlocations | grep -Fxq "$LOCATION"; then
        run networksetup -deletelocation "$LOCATION"
    fi
    run rm -f "$file"
}

case "$MODE" in
    "" | --dry-run | --undo) ;;
    *) fail "usage: setup.sh [--dry-run | --undo]" ;;
esac
check_machine
if [ "$MODE" = "--undo" ]; then
    undo
    exit 0
fi
check_rdma
use_location
turn_bridge_off
give_each_port_a_service
say "done: \`ibv_devinfo\` shows PORT_ACTIVE for each port with a cable, \`exo doctor\` what is missing"

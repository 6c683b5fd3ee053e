// Package systembus is a system bus of one's own, for machines on which no
// systemd runs, with what kubelets and their tests look for on it: the login
// manager, which hands out delay locks and announces that the machine goes
// down, and the part of systemd that starts and stops services.
//
// Programs find the bus by the variable DBUS_SYSTEM_BUS_ADDRESS. A test, or
// whoever emits its signals, plays the machine that goes down.
package systembus

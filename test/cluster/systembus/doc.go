// Package systembus runs a private system bus, for machines without systemd, with the services that kubelets and their
// tests use: the login manager, which grants delay locks and announces a shutdown, and the part of systemd that starts
// and stops units.
//
// Programs find the bus by the variable DBUS_SYSTEM_BUS_ADDRESS. Tests announce the shutdown.
package systembus

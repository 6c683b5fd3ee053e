// Package host changes the machine for a development cluster, and undoes all of it: processes, mounts, cgroups, network
// devices, firewall chains, kernel settings and directories outside the cluster's own.
//
// The functions do not need a healthy cluster. They find everything again from the files in a cluster's state
// directory, so that a later run can clean up after one that was killed.
package host

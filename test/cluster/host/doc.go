// Package host is what a development cluster does to the machine it runs on,
// and how all of it is undone: processes, mounts, control groups, network
// devices, firewall chains, kernel settings and directories outside its own.
//
// Nothing here needs the cluster to be healthy. Everything can be found again
// from the files in a cluster's state folder, so that a later run cleans up
// after one that was killed.
package host

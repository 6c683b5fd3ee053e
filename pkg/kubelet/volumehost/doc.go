// Package volumehost implements the host of volume plugins: volume.VolumeHost and volume.KubeletVolumeHost of the stock
// volume library. Plugins use the second by a type assertion; without it CSI, projected volumes and mount options would
// be missing without an error.
//
// Config has to be complete before InitPlugins, and the runtime state in place: during its initialization the CSI
// plugin sets the storage error, reads client, lister and informer factory, and starts a goroutine that waits for the
// API server (and ends the process if the CSINode object cannot be written for about 140 s after that). In standalone
// mode Client, Secrets and ConfigMaps are nil interfaces. The plugin manager that InitPlugins returns is for the volume
// manager, whose Run starts the informer factory.
package volumehost

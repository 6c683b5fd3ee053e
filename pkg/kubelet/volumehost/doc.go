// Package volumehost implements the host of volume plugins: volume.VolumeHost and volume.KubeletVolumeHost of the stock
// volume library. Plugins convert the first to the second by a type assertion. If that failed, CSI, projected volumes
// and mount options would not work, without an error.
//
// Config must be complete before InitPlugins, and the runtime state must exist: during its initialization the CSI
// plugin sets the storage error, reads client, lister and informer factory, and starts a goroutine that waits for the
// API server (and ends the process if it cannot write the CSINode object for about 140 s after that). In standalone
// mode Client, Secrets and ConfigMaps are nil interfaces. InitPlugins returns the plugin manager for the volume
// manager, whose Run starts the informer factory.
package volumehost

// Package volumehost is what volume plugins see of the agent: volume.VolumeHost and volume.KubeletVolumeHost of the
// stock volume library. Plugins find the second by a silent type assertion; a host without it would lose CSI, projected
// volumes and mount options without a word.
//
// Everything in Config is complete before InitPlugins, and the runtime state is in place: the CSI plugin sets the
// storage error and reads client, lister and informer factory while it is initialized, and starts a goroutine that
// waits for the API server (it ends the process if the CSINode object cannot be written for about 140 s after that). In
// standalone mode Client, Secrets and ConfigMaps are nil interfaces. The plugin manager that InitPlugins returns goes
// to the volume manager, whose Run starts the informer factory.
package volumehost

// Package volumehost is what volume plugins see of the agent: volume.VolumeHost and volume.KubeletVolumeHost of the
// stock volume library. Plugins find the second by a silent type assertion; a host without it would lose CSI, projected
// volumes and mount options without a word.
//
// # Composition
//
//	host := volumehost.New(volumehost.Config{
//		Layout: layout, Client: deps.Clients.Kube, Nodes: view, Recorder: recorder,
//		StorageError: runtimeState.SetStorageError,
//		Mounts: volumehost.Mounts{Mounter: …, HostUtil: …, Subpather: …},
//		Objects: volumehost.Objects{Secrets: secretManager, ConfigMaps: configMapManager, Tokens: tokenManager,
//			TrustBundles: trustBundles, PodCertificates: podCertificates},
//		Stopped: ctx.Done(),
//	})
//	plugins, err := host.InitPlugins(deps.Volumes.Plugins, deps.Volumes.DynamicProber) // error: stop
//
// Everything in Config is complete before InitPlugins, and the runtime state is in place: the CSI plugin sets the
// storage error and reads client, lister and informer factory while it is initialized, and starts a goroutine that
// waits for the API server (it ends the process if the CSINode object cannot be written for about 140 s after that). In
// standalone mode Client, Secrets and ConfigMaps are nil interfaces. The returned manager goes to the volume manager,
// whose Run starts the informer factory.
package volumehost

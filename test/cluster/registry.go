package cluster

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plimsoll-project/plimsoll/test/cluster/host"
)

// registryAddress is where the registry listens: on loopback, or in the network that the cluster shares with its node.
func (c Config) registryAddress() string { return fmt.Sprintf("%s:%d", c.address(), RegistryPort) }

// ImageDirName returns the name of the mirror's directory of an image: the name of the image without the registry, in
// characters that a file name can have.
func ImageDirName(image string) string {
	name := strings.TrimPrefix(image, MirroredRegistry+"/")
	return strings.NewReplacer("/", "+", ":", "=").Replace(name)
}

func imageOfDir(dir string) string {
	return strings.NewReplacer("+", "/", "=", ":").Replace(filepath.Base(dir))
}

// registry keeps its content beside the images, so that a second start has little to push.
func (c *Cluster) registry() host.Command {
	return host.Command{
		Name: processRegistry,
		Path: c.config.Layout.Program("crane"),
		Args: []string{
			"registry", "serve", "--address", c.config.registryAddress(), "--disk", filepath.Clean(c.config.Mirror) + ".blobs",
		},
		Env: []string{fmt.Sprintf("PORT=%d", RegistryPort)},
	}
}

// startRegistry serves every image of the mirror's directory.
func (c *Cluster) startRegistry(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Clean(c.config.Mirror)+".blobs", 0o755); err != nil {
		return fmt.Errorf("make registry folder: %w", err)
	}
	if err := c.startAndWait(ctx, c.registry(), c.registryReady); err != nil {
		return err
	}
	dirs, err := filepath.Glob(filepath.Join(c.config.Mirror, "*"))
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	slices.Sort(dirs)
	for _, dir := range dirs {
		target := c.config.registryAddress() + "/" + imageOfDir(dir)
		push := c.config.inNetwork(host.Command{
			Path: c.config.Layout.Program("crane"), Args: []string{"push", "--insecure", dir, target},
		})
		if out, err := exec.CommandContext(ctx, push.Path, push.Args...).CombinedOutput(); err != nil {
			return fmt.Errorf("push %s: %w: %s", target, err, out)
		}
	}
	return nil
}

func (c *Cluster) registryReady(ctx context.Context) error {
	address := "http://" + c.config.registryAddress() + "/v2/"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DialContext: c.config.dial(), DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// writeMirror makes containerd pull images of MirroredRegistry from the cluster's registry.
func writeMirror(config Config) error {
	dir := filepath.Join(config.Layout.config("registries"), MirroredRegistry)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make registry folder: %w", err)
	}
	text := fmt.Sprintf("server = %[1]q\n\n[host.%[1]q]\n", "http://"+config.registryAddress())
	if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write registry configuration: %w", err)
	}
	return nil
}

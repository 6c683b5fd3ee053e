//go:build e2e

package e2enode

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/plimsoll-project/plimsoll/test/cluster/build"
)

// privateRegistry serves one image to clients with the password. It implements the part of the distribution
// specification of the Open Container Initiative that a runtime needs to pull.
type privateRegistry struct {
	*httptest.Server
	// image is the name of the only image.
	image string
	// dir is where the image lies, in the OCI layout; manifest is the digest of its manifest.
	dir, manifest string
	// served and refused count requests.
	served, refused atomic.Int64
}

const (
	registryUser     = "captain"
	registryPassword = "sesame"
)

// startPrivateRegistry serves an image that no other test uses, and whose program only pauses.
func (s *space) startPrivateRegistry() *privateRegistry {
	s.t.Helper()
	registry := &privateRegistry{dir: s.t.TempDir()}
	registry.Server = httptest.NewServer(registry)
	s.t.Cleanup(registry.Close)
	registry.image = registry.host() + "/private:1"
	s.must(build.Image{
		Name: registry.image, Entrypoint: []string{"/pause"},
		Files:   map[string]string{"/pause": builder.Path("pause")},
		Content: map[string]string{"/of": s.name},
	}.WriteDir(registry.dir))
	data, err := os.ReadFile(filepath.Join(registry.dir, "index.json"))
	s.must(err)
	var index struct{ Manifests []struct{ Digest string } }
	s.must(json.Unmarshal(data, &index))
	registry.manifest = index.Manifests[0].Digest
	return registry
}

// host is the address and port.
func (r *privateRegistry) host() string { return strings.TrimPrefix(r.URL, "http://") }

// repository is the image's name without the tag.
func (r *privateRegistry) repository() string { return strings.TrimSuffix(r.image, ":1") }

// ServeHTTP serves manifests by tag or digest, and blobs by digest.
func (r *privateRegistry) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	if user, password, _ := request.BasicAuth(); user != registryUser || password != registryPassword {
		r.refused.Add(1)
		response.Header().Set("WWW-Authenticate", `Basic realm="private"`)
		http.Error(response, "no password", http.StatusUnauthorized)
		return
	}
	r.served.Add(1)
	kind, name, _ := strings.Cut(strings.TrimPrefix(request.URL.Path, "/v2/private/"), "/")
	if kind == "manifests" {
		name = r.manifest
		response.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		response.Header().Set("Docker-Content-Digest", name)
	}
	blob := strings.TrimPrefix(filepath.Base(name), "sha256:")
	http.ServeFile(response, request, filepath.Join(r.dir, "blobs", "sha256", blob))
}

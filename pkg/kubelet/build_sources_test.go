package kubelet

import (
	"net/http"
	"reflect"
	"testing"
)

// Header names are spelled as Go's client spells them, whatever the configuration says.
func TestStaticPodHeader(t *testing.T) {
	got := staticPodHeader(map[string][]string{"metadata-flavor": {"a", "b"}, "User-Agent": {"mine"}})
	if want := (http.Header{"Metadata-Flavor": {"a", "b"}, "User-Agent": {"mine"}}); !reflect.DeepEqual(got, want) {
		t.Errorf("header %v, want %v", got, want)
	}
}

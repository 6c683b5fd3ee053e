package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

const stockSummary = `{"node":{"nodeName":"stock","memory":{"availableBytes":%d,"workingSetBytes":1073741824},
"fs":{"availableBytes":50,"capacityBytes":100,"inodesFree":1,"inodes":2},"runtime":{"imageFs":{"availableBytes":5}}},
"pods":[]}`

// A stock node is shown with what its pages have: what is available, and the thresholds of its configuration.
func TestStockNodes(t *testing.T) {
	summary, config := fmt.Sprintf(stockSummary, 3<<30), `{"kubeletconfig":{"evictionHard":{"memory.available":"25%"}}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch page := map[string]string{
			"/api/v1/nodes/stock/proxy/stats/summary": summary, "/api/v1/nodes/stock/proxy/configz": config,
		}[r.URL.Path]; page {
		case "":
			http.NotFound(w, r)
		default:
			_, _ = w.Write([]byte(page))
		}
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{cluster: &cluster{
		Interface: fake.NewClientset(node("stock", v1.NodeDiskPressure)), ask: proxy{client.CoreV1().RESTClient()},
	}}
	out, _, code := w.run(t, "status", "--exit-code")
	expect(t, out, "stock", "DiskPressure", "memory.available", "3072Mi", "1024Mi", "2048Mi")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	out, _, _ = w.run(t, "status", "stock")
	expect(t, out, "memory.available", "nodefs.available", "nodefs.inodesFree", "The kubelet is stock", "DiskPressure")
	summary = fmt.Sprintf(stockSummary, 10<<20)
	if _, _, code := w.run(t, "status", "--exit-code"); code != ExitPressure {
		t.Errorf("exit code %d", code)
	}
	// Without its configuration there are no thresholds; without both, its conditions.
	config = ""
	if out, _, code = w.run(t, "status", "-o", "wide", "--exit-code"); code != 0 {
		t.Errorf("exit code %d", code)
	}
	expect(t, out, "memory.available", "10Mi")
	summary = ""
	out, _, _ = w.run(t, "status", "stock")
	expect(t, out, "stock", "DiskPressure")
}

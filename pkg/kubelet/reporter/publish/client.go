package publish

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// NewClient returns a dynamic client that sends each request once. Others repeat a request up to ten times within one
// call when the answer has a Retry-After, so that what is sent is old by then; a Publisher has a back-off of its own.
// The configuration is not modified. Its time-out is not used, since it would end watches.
func NewClient(config *rest.Config) (dynamic.Interface, error) {
	config = dynamic.ConfigFor(config)
	config.Timeout = 0
	config.QPS = -1 // a Publisher has a pace of its own
	config.GroupVersion, config.APIPath = nil, "/"
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return dynamic.New(onceClient{client}), nil
}

// onceClient makes requests that are not repeated. The methods are those that the dynamic client uses for what a
// Publisher sends.
type onceClient struct{ rest.Interface }

func (c onceClient) Verb(verb string) *rest.Request { return c.Interface.Verb(verb).MaxRetries(0) }

func (c onceClient) Get() *rest.Request { return c.Interface.Get().MaxRetries(0) }

func (c onceClient) Patch(t types.PatchType) *rest.Request { return c.Interface.Patch(t).MaxRetries(0) }

package podsync

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
)

// concludeSync makes the runtime's result that of the pass. After a pass that did something the PLEG is asked to look at once, so
// that the change is published without waiting for its next round.
type concludeSync struct{ relist func(types.UID) }

func (concludeSync) Name() string { return "sync with the runtime" }

func (s concludeSync) Run(_ context.Context, p *syncPass) (verdict, error) {
	if err := p.runtime.Error(); err != nil {
		return settled, err
	}
	if len(p.runtime.SyncResults) > 0 {
		uid := p.Pod.UID
		p.afterSync(func() { s.relist(uid) })
	}
	return settled, nil
}

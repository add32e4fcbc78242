/** A component that is drawn again only when one of its properties is another object. */

import { Component, h, type ComponentType, type FunctionComponent } from "preact";

export function memo<P extends object>(of: FunctionComponent<P>): ComponentType<P> {
  return class Memo extends Component<P> {
    override shouldComponentUpdate(next: P): boolean {
      const before = this.props as Record<string, unknown>;
      return Object.entries(next).some(([key, value]) => before[key] !== value);
    }

    override render() {
      return h(of, this.props as P);
    }
  };
}

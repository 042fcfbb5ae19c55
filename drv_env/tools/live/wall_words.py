"""What walls say, in the words of those who build them: pieces of text and titles.

Data of :mod:`drv_env.tools.live.walls`.  A piece is a line or sentence in lower case, with
plain apostrophes and single blanks.  Words were collected from the challenge pages of
Akamai, Amazon, Anubis, AWS WAF, Baidu, Cloudflare, DataDome, DDoS-Guard, F5, Google, hCaptcha,
HUMAN, Imperva, LiteSpeed, SiteGround, Sucuri, Vercel and Yandex, and from the shells that
Angular, React and Vue apps send to who runs no scripts.
"""

from __future__ import annotations

import re

_JS = r"(?:js|java ?script)"

_LEAD = r"""(?:
    (?:please|sorry|kindly|oops|hello|wait|hold\ on|first|but|and|one\ more\ step)[,!.:\s]+
  | (?:to|in\ order\ to|before\ you|before\ we)\ (?:can\ )?
        (?:continue|proceed|access|view|visit|regain|keep|use|enter|let|protect)[^,.]{0,80}?[, ]+
  | for\ (?:security\ reasons|your\ security|best\ results)[, ]+
  | (?:we|you)(?:'ll|\ just|\ will|\ do|\ also|\ first|\ still)*\ (?:need|want|have|must|like
        |ask)\ ?
        (?:you\ )?(?:to\ )?
  | (?:let's|let\ us|help\ us|we\ are|we're|you\ are|you\ must|you\ should)\ (?:just\ )?
  | this\ (?:site|website|page|app|request|process)\ (?:is\ |needs\ to\ |wants\ to\ )?
  | (?:[\w-]+\.)+[a-z]{2,}\ (?:is\ |needs\ to\ |wants\ to\ )?
  | (?:our|the)\ (?:security\ )?(?:systems?|site|website|server)\ (?:has\ |have\ |is\ )?
){0,3}"""

_ROBOT_WORDS = rf"""{_LEAD}(?:
    (?:verif(?:y|ies|ying)|confirm\w*|prov(?:e|es|ing)|mak(?:e|es|ing)\ sure|ensur(?:e|es|ing)
        |check(?:s|ing)?|show|see|know|tell\ us|letting\ us\ know|sure)\ (?:to\ (?:us|see)\ )?
        (?:that\ |if\ |whether\ )?(?:it(?:'?s|\ is)\ )?(?:really\ |actually\ )?
        (?:you|your|the\ visitor|visitors|users)
        .{{0,60}}?(?:\bhumans?\b|\brobots?\b|\bbots?\b|real\ person|automated
        |sending\ the\ requests)
  | (?:verify|confirm|check|prov)\w*.{{0,25}}\b(?:not\ a|no)\ (?:ro)?bot\b
  | (?:check|verify|review|validat|analy[sz]|test|inspect)(?:ing|s|\ |es)\ ?(?:if\ |that
        \ |whether\ )?
        (?:the\ |your\ |this\ )?(?:security\ of\ (?:your|the)\ )?
        (?:browser|connection|site\ connection|device|security|request|human)
  | (?:perform|run|complet|undergo|pass|solv|finish)(?:ing|e|s|\ )?\ ?(?:(?:a|an|the|this
        |following|below|above|quick|short|additional|simple)\ )*
        (?:security|browser|captcha|re-?captcha|challenge|puzzle|verification|human
        |check\ (?:to|below|above))
  | (?:a\ )?(?:security|human|bot|browser)\ (?:check|verification|checkpoint|challenge)
        (?:\ (?:required|needed|in\ progress|failed|page)|\ by\ .{{0,30}})?\W*$
  | (?:are\ you|i'm|i\ am|you're)\ (?:really\ )?(?:a\ |not\ a\ |no\ )?(?:human|robot|bot)\b
  | not\ a\ robot\W*$
  | (?:checks|verifies|makes\ sure)\ .{{0,30}}(?:human|robot|bot)\b
  | (?:uses?|using)\ (?:a|an)\ (?:security|bot|anti|protection)\b(?:\ (?:service|solution))?
        (?:\ to\ protect)?
  | protected\ by\ (?:an?\ )?(?:anti|bot|anubis|cloudflare|datadome|ddos|security)
  | (?:enter|type)\ the\ (?:characters|letters|code|text|numbers|symbols|words)
        \ (?:you\ see|below|shown|displayed|above|in\ th|from\ th)
  | (?:press|activate|click|tap|touch)\ (?:&|and)\ hold\b
  | (?:slide|drag)\ (?:the\ |right\ |to\ ).{{0,40}}(?:secure|verify|puzzle|slider|access
        |complete|continue)
  | (?:select|click)\ (?:all\ |on\ |the\ )*(?:images|squares|pictures|box\ below|checkbox
        |button\ below)
  | (?:we've\ |we\ )?(?:have\ |has\ )?(?:detected|noticed|identified)\ (?:some
        \ |an?\ )?(?:unusual|suspicious|abnormal|automated|strange|malicious|that\ your)
  | (?:unusual|suspicious|automated)\ (?:traffic|activity|requests?)\b
  | (?:your\ |this\ |the\ )?(?:access|request|(?:browsing\ )?activity|connection|ip|ip\ address
        |computer|network|client|device)
        (?:\ to\ .{{0,80}}?)?(?:\ (?:has|have|had|was|were|is|are|been))*
        \ (?:temporarily\ |automatically\ )?(?:denied|blocked|rejected|restricted|limited
        |flagged|paused|forbidden|unsuccessful)\b(?!\ (?:is|was|are|were|has|by)\ (?:an?|the
        |its?|about|released|from)\b)
  | (?:you|you've)\ (?:have\ |are\ |were\ |been\ )*(?:temporarily\ )?(?:blocked|denied\ access)\b
  | (?:you\ )?(?:don't|do\ not)\ have\ (?:permission|access)\ to\b
  | incapsula\ incident
  | requested\ url\ was\ rejected | the\ requested\ url\ was\ rejected
  | (?:ddos|bot|anti-?bot)\ (?:protection|mitigation)(?:\W*$|\ by\b)
  | (?:your\ )?(?:computer|network|browser|ip).{{0,30}}\ (?:sending
        |making)\ .{{0,12}}(?:automated|requests|queries)
  | (?:can't|cannot|could\ not|couldn't|unable\ to)\ (?:process|complete|fulfil|verify)\ your\b
  | (?:thinks?|believes?|suspects?)\ (?:that\ )?you\ .{{0,20}}\b(?:ro)?bot\b
  | (?:tick|check|click|tap|press|slide|drag|complete|use|follow|answer|solve)\b.{{0,60}}
        \b(?:you\ are|you're)\ (?:a\ )?(?:human|real|not\ a\ (?:ro)?bot)\b
  | (?:(?:solv|complet)\w+\ )?(?:the\ )?(?:above\ |re-?|h)?captcha(?:\W*$|\ (?:will|below|above
        |is\ required|to\b))
  | waiting\ for\ .{{0,80}}\ to\ respond
  | verification\ (?:success|fail|is\ taking|required|in\ progress)
  | something\ about\ your\ (?:browser|activity)
  | as\ you\ were\ browsing
  | (?:you\ )?(?:look|seem|appear|behave)\ (?:to\ be\ )?(?:like\ )?(?:a\ )?(?:robot|bot|automated)
  | (?:review|check)\ the\ security\ of\ your\ connection
  | protect\ .{{0,30}}(?:\ by\ verifying\ that\b|\ by\ confirming\ that\b)
  | seeing\ this\ because\ the\ (?:administrator|owner)\ of\ .{{0,20}}has\ set\ up\b.{{0,250}}
  | prove\ your\ humanity | not\ for\ bots\W*$ | get\ your\ identity\ verified
  | wait\ a\ few\ minutes\ before\ you\ try\ again | unblock\ challenges\.
  | .{{0,60}}\bmade\ us\ think\ (?:that\ )?you\ (?:are|were)\ a\ (?:ro)?bot
  | (?:you've\ |you\ |have\ |\ )*(?:sent|made|making|sending)\ too\ many\ requests
  | there\ was\ a\ problem\ providing\ the\ content\ you\ requested
)"""

_SCRIPT_WORDS = rf"""{_LEAD}(?:
    turn\ {_JS}\ on\b
  | (?:enable|turn\ on|activate|allow|switch\ on|use\ a\ browser\ with)\ (?:cookies\ and\ )?{_JS}\b
        (?!.{{0,60}}\b(?:comments?|videos?|player|map|disqus|poll|image|gallery|chart)\b)
  | {_JS}(?:\ and\ cookies|\ support)?\ (?:is|are|was|must\ be|needs\ to\ be|has\ been
        |seems\ to\ be|appears\ to\ be)\ (?:currently\ |not\ )*(?:required|disabled|available
        |enabled|turned\ off|off|needed|necessary|blocked
        |supported)\b(?:\ or\ blocked)?(?:\ (?:by|in|on)\ (?:an?|this
        |your)\ \w+)?(?!.{{0,40}}\b(?:comments?|videos?|player|map|disqus|poll)\b)
  | (?:(?:the|this)\ )?(?:site|app|page|website|application|content|service)?\ ?(?:requires?
        |needs?|works?\ best\ with)\ {_JS}\b
  | .{{0,60}}\b(?:doesn't|does\ not|won't|will\ not|cannot|can't)\ (?:\w+\ ){{0,2}}without\ {_JS}
  | (?:your\ )?browser\ (?:does\ not|doesn't)\ (?:support|have|run)\ {_JS}
  | {_JS}\ (?:required|disabled)\W*$
  | (?:we(?:'ve|\ have)\ )?detected\ that\ {_JS}\ is
  | disable\ (?:any|your)\ ad ?-?blocker
  | (?:make\ sure|ensure)\ (?:that\ )?your\ browser\ (?:supports|accepts|is\ accepting
        |has)\ .{{0,30}}(?:{_JS}|cookies)
  | (?:make\ sure|ensure)\ (?:that\ )?(?:cookies\ and\ )?{_JS}
  | you(?:'ve|\ have)\ (?:disabled|turned\ off|blocked)\ {_JS}
  | a\ required\ part\ of\ this\ site\ (?:couldn't|could\ not)\ load
  | (?:it\ (?:looks|seems|appears)\ (?:like|that)\ )?(?:your\ )?browser\ has\ {_JS}
  | {_JS}\ (?:to\ be\ )?(?:enabled|turned\ on)\b
  | (?:your\ )?browser\ (?:does\ not|doesn't)\ (?:support|accept|allow)\ cookies
  | enable\ (?:cookies|it\ (?:to|or|and|in))\b
)"""

_CONSENT_WORDS = r"""(?:
    we(?:,?\ and\ our\ .{0,40}partners,?|,\ .{0,60},)?\ (?:use|store
        |process)\ .{0,60}(?:cookies|personal\ data)
  | (?:accept|reject|allow|decline|agree)\ (?:to\ )?(?:all|cookies|and\ (?:close|continue))
  | (?:manage|cookie|privacy)\ (?:settings|preferences|options|choices)
  | (?:we\ (?:value|care\ about)\ )?your\ (?:data\ )?privacy(?:\ (?:matters|choices))?\W*$
  | if\ you\ (?:choose\ to\ |click\ )?["“']?(?:accept|reject)\ all
  | before\ you\ continue
)"""

_OTHER_LANGUAGES = r"""
    (?:k?ein|als|nicht\ ein)\ roboter|bestätigen.{0,40}(?:mensch|roboter)
        |ungewöhnliche.{0,12}(?:datenverkehr|aktivität)
  | (?:überprüf|prüf).{0,40}(?:browser|sicherheit|verbindung|ein\ mensch)
        |sicherheit\ ihrer\ verbindung|zugriff.{0,30}(?:verweigert
        |blockiert|gesperrt)
  | aktivieren\ sie.{0,20}javascript|javascript.{0,20}(?:aktivier|deaktiviert|erforderlich)
  | (?:n'êtes|n'es|ne\ suis|êtes)\ (?:pas\ )?un\ robot|vérifi.{0,40}(?:humain|robot|navigateur
        |sécurité|connexion)
  | trafic\ (?:inhabituel|exceptionnel)|accès.{0,30}(?:refusé|bloqué|interdit)|activ(?:er
        |ez)\ .{0,12}javascript
  | (?:es|soy|eres|é|sou|sei|sono)\ un\ rob[oô]t?|(?:es|é)\ (?:un\ )?(?:ser\ )?humano|sei\ umano
  | verifi.{0,40}(?:human[oa]|umano|robot|robô|navegador|navigatore|segur|sicurezza)
  | (?:tráfico|tráfego|traffico)\ (?:inusual|sospechoso|incomum|insolito|anomalo)
        |acc?es[so]+\ (?:denegado|negato|negado)
  | (?:habilit|activ|abilit|attiv|ativ)\w*\ .{0,8}javascript
  | (?:geen|een)\ robot|bent.{0,12}mens|schakel\ .{0,12}javascript|toegang\ geweigerd
        |ongebruikelijk\ verkeer
  | potwierdź.{0,20}człowiek|(?:nie\ jesteś|jesteś)\ (?:robotem|człowiekiem)
        |włącz.{0,10}javascript|odmowa\ dostępu
  | не\ (?:робот|бот)\b|вы\ (?:робот|человек)|провер.{0,40}(?:браузер|безопасн|соединен|челов)
  | (?:необычн|подозрительн|автоматическ)\w+\ (?:трафик|активност|запрос)
        |доступ.{0,30}(?:запрещ|огранич|заблок)
  | включите.{0,12}javascript|запросы\ отправляли\ вы
  | no\ tienes?\ permiso|n'avez\ pas\ (?:la\ permission|l'autorisation)|keine\ berechtigung
  | non\ hai\ (?:i\ permessi|l'autorizzazione)|não\ tem\ permissão
  | robot\ (?:değil|olmad)|insan\ olduğunuz|javascript.{0,6}etkinleştir|olağan\ ?dışı\ trafik
  | (?:人机|人機|安全|滑动|身份|完成|访问|进行|去|点击)(?:验证|驗證)|(?:不是|非)(?:机器人|機器人)
  | (?:启用|开启|打开|啟用|開啟).{0,8}(?:javascript|js)
        |(?:异常|異常)(?:流量|访问|请求)(?:从你的\ ?ip\ ?发出)?
        |(?:环境|网络)异常
  | 网络不给力|安全风控|访问请求被拒绝|自动程序发出|(?:输入|完成).{0,8}验证码
  | 访问(?:被拒绝|受限|过于频繁)|正在(?:检查|验证|檢查|驗證)|拖动.{0,6}滑块
  | ロボット.{0,14}(?:ない|ありません).{0,12}|(?:通常と異なる|異常な)トラフィック
        |javascript\ ?を(?:有効|オン)
  | アクセスが?(?:拒否|制限|ブロック)|人間であること|(?:セキュリティ|ブラウザ).{0,10}(?:確認
        |チェック|検証)
  | 로봇이\ ?아|자동화된\ (?:접근|요청|트래픽)|비정상적인\ ?(?:트래픽|접근|접속)|자동\ ?(?:입력
        |등록|가입)\ ?방지|(?:javascript|자바스크립트).{0,6}(?:활성화|사용|켜)
  | 보안\ ?(?:확인|검사|검증|문자)|(?:접근|접속|액세스)[이가]?\ ?(?:거부|차단|제한)
        |사람인지\ ?확인|브라우저.{0,4}확인
"""

_FILLER_WORDS = r"""(?:
    (?:this\ (?:site|page|form)\ is\ )?protected\ by\ (?:re|h)captcha
  | please\ (?:wait|stand\ by|try|refresh|reload|contact|email|be\ patient|allow|include|note
        |consult)
  | (?:this|it|the\ check|verification)\ (?:may|might|should|will|process|page\ (?:will
        |is\ displayed)|is\ automatic)
  | thank\ you|thanks|sorry(?!\ (?:is|was)\b)|we(?:\ are|'re)\ (?:really\ |very\ )?sorry|we\ apologi
        |our\ apologies|oops
  | if\ you(?:'re|\ are)\ running\ a\ script
  | if\ you\ (?:believe|think|feel|are\ (?:not|a\ human|the)
        |have\ (?:any|question)|need
        |continue|keep|still|can't)
  | why\ (?:did|have|am|do|was|is)|what\ (?:can\ i|should\ i|happened|does)|how\ (?:do\ i|can\ i)
  | (?:contact|email)\ (?:us|the|our|support)|you\ can\ (?:email|contact|try|also|see\ a\ list)
        |to\ discuss
  | (?:reload|refresh|try\ (?:again|different))|for\ (?:more|inquiries|assistance|help
        |information)|need\ help
  | (?:your\ browser|you)\ will|redirecting|(?:performance|security)\ (?:&|and|by)|cloudflare
        |by\ clicking
  | (?:cloudflare\ )?ray\ id|reference|incident|support\ id|request\ id|block|trace
        |error\ (?:code|id|reference|\d)
  | (?:your\ |client\ )?ip\b|privacy|terms|cookie|copyright|©|all\ rights|powered\ by
        |learn\ more|sign\ in
  | log\ in|try\ (?:logging|signing)\ in|your\ (?:cloudflare\ )?ray\ id
        |go\ back|back\ to|continue\ shopping|conditions\ of\ use|uuid|session
        |there\ are\ (?:several|a\ few)|time:|url:
  | about\ this\ page|this\ page\ (?:appears|is\ displayed)|the\ (?:action\ you|block\ will)
        |in\ the\ meantime
  | once\ (?:this|the)\ check|additionally\ make\ sure|anubis\ (?:is\ a\ compromise
        |uses\ a\ proof-of-work
        |requires\ the\ use)|the\ idea\ is\ that\ at\ individual\ scales
  | ultimately,\ this\ is\ a\ (?:placeholder|hack)|we're\ committed\ to\ safety|your\ support\ id
  | dies\ kann\ (?:ein|einige)|cela\ peut\ prendre|esto\ puede\ tardar|isso\ pode\ levar
  | l'operazione\ potrebbe|bu\ işlem|to\ może|это\ может|dit\ kan\ |これには|몇\ 초
  | the\ site\ owner|timestamp|selecting|click\ here|请稍|请等|返回|取消|잠시만|少々お待ち
        |しばらく|bitte\ warten|veuillez|un\ momento|patientez|пожалуйста|подождите
        |to\ protect\ our
)"""

_TITLES = r"""(?:
    (?:just|only)\ a\ (?:moment|second)|(?:one|wait\ a)\ moment(?:,?\ please)?|please\ wait|loading
  | (?:429\s+)?too\ many\ requests|rate\ limit(?:ed|\ exceeded)
  | (?:your\ )?access\ to\ this\ (?:site|page)\ has\ been\ limited(?:\ by\ .{0,20})?
  | additional\ verification(?:\ (?:required|needed))?|help\ us\ protect\ .{0,30}
  | attention\ required|access(?:\ to\ this\ (?:page|site))?(?:\ has\ been|\ is
        |\ was)?\ (?:denied|blocked|restricted)
  | (?:are\ you|i'm|i\ am)\ (?:not\ )?(?:a\ )?(?:robot|human|bot)|robot\ or\ human
        |human\ or\ (?:ro)?bot
  | (?:security|human|bot|browser|captcha|robot|client|user)\ (?:check|verification|checkpoint
        |challenge|validation)
        (?:\ (?:screen|required|page))?
  | verif(?:y|ying)\ .{0,20}\bhuman|verification(?:\ required)?|checking\ (?:your|if)\ .{0,40}
  | ddos-?guard|ddos\ protection.{0,20}|pardon\ (?:our|the)\ interruption|bitte\ warten
        |making\ sure\ you're\ not\ a\ bot
  | (?:vercel\ )?security\ checkpoint|re-?captcha|h?captcha|unusual\ traffic.{0,40}|sorry
  | (?:sorry,\ )?you\ (?:have\ been|are|were)\ blocked|blocked|forbidden|request\ (?:rejected
        |unsuccessful|blocked)
  | we\ (?:value|respect)\ your\ privacy|javascript\ (?:is\ )?(?:disabled|required
        |not\ available)|sucuri\ website\ firewall|whoa\ there.{0,12}
  | performing\ security\ verification|before\ you\ continue(?:\ to\ .{1,40})?
  | (?:nur\ )?einen?\ (?:kleinen\ )?moment.{0,12}|un\ (?:instant|momento)(?:\ s'il\ vous.{0,10}
        |,?\ per\ favore)?|um\ momento
  | (?:een|één)\ moment.{0,12}|bir\ dakika.{0,12}|un\ attimo.{0,12}
        |cierpliwości|proszę\ czekać
        |один\ момент|ожидайте.{0,12}|ой|вы\ не\ робот
        |проверка\ .{0,30}
  | zugriff\ verweigert|accès\ (?:refusé|interdit)|acceso\ denegado|accesso\ negato
        |acesso\ negado|доступ\ .{0,6}запрещ[её]н
  | 请稍[候等]|稍等片刻|(?:.{0,4}安全|人机|访问|滑动|滑块|图形|身份)?(?:验证|驗證)(?:码|页面
        |中心)?|环境异常|访问(?:被拒绝|受限)
  | 少々お待ちください|しばらくお待ちください|アクセスが?拒否.{0,8}|ロボットではありません
  | 잠시만\ 기다리.{0,6}|보안\ ?(?:확인|문자)|접근.{0,4}(?:거부|차단).{0,4}
)"""


def _pattern(*families: str) -> re.Pattern[str]:
    return re.compile("|".join(families), re.VERBOSE)


ROBOTS = _pattern(_ROBOT_WORDS)
"""Begins a piece by which a wall asks for proof, or turns its visitor away."""

SCRIPTS = _pattern(_SCRIPT_WORDS)
"""Begins a piece by which a page says that it shows nothing without scripts or cookies."""

CONSENT = _pattern(_CONSENT_WORDS)
"""Begins a piece of a question for consent."""

OTHER_LANGUAGES = _pattern(_OTHER_LANGUAGES)
"""Stands in a short piece of such a wall in another language."""

FILLER = _pattern(_FILLER_WORDS)
"""Begins a piece that stands on walls and pages alike, and says nothing of what a page holds."""

TITLE = _pattern(_TITLES)
"""A title, or one side of it, where nothing stands beside but dots and signs."""

LOOSE = re.compile(
    r"captcha|verif|robot|\bbots?\b|human|security|challenge|unusual|blocked|denied|验证|驗證|確認"
    r"|認証|확인|인증|провер|робот|überprüf|sicherheit|vérifi|sécurité"
)
"""Stands in a piece of a wall where a reader warns that there may be one."""
